#!/usr/bin/env python3
"""Draws the table of `run flor` as SVG: throughput over the share of packets that are lost, a panel for each size.

    plot.py ROWS > PLOT.svg
"""
import sys
from collections import defaultdict

COLOURS = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e6bbf"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 330, 250, 55, 45, 30


def rows(file):
    for line in open(file):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 6 and cells[3].isdigit():
            yield cells[0], cells[1], int(cells[2]), int(cells[3])


def main():
    table, losses, services = defaultdict(dict), [], []
    for lost, service, size, rate in rows(sys.argv[1]):
        table[size][service, lost] = rate
        for known, new in ((losses, lost), (services, service)):
            if new not in known:
                known.append(new)
    panels = len(table)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{panels * (WIDTH + LEFT) + 20}" '
          f'height="{HEIGHT + BOTTOM + TOP + 25}" font-family="sans-serif" font-size="11">')
    print('<rect width="100%" height="100%" fill="white"/>')
    for panel, size in enumerate(sorted(table)):
        left = panel * (WIDTH + LEFT) + LEFT
        most = max(table[size].values()) * 1.1
        y = lambda rate: TOP + HEIGHT - HEIGHT * rate / most  # noqa: E731
        x = lambda at: left + 20 + (WIDTH - 40) * at / max(1, len(losses) - 1)  # noqa: E731
        name = f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
        print(f'<text x="{left + WIDTH / 2}" y="18" text-anchor="middle">messages of {name}, MB/s</text>')
        print(f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>')
        for step in range(5):
            rate = most / 1.1 * step / 4
            print(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(rate):.1f}" y2="{y(rate):.1f}" stroke="#ddd"/>')
            print(f'<text x="{left - 5}" y="{y(rate) + 4:.1f}" text-anchor="end">{rate:.0f}</text>')
        for at, lost in enumerate(losses):
            print(f'<text x="{x(at):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">{lost}</text>')
        for index, service in enumerate(services):
            colour = COLOURS[index % len(COLOURS)]
            points = [(x(at), y(table[size][service, lost])) for at, lost in enumerate(losses)
                      if (service, lost) in table[size]]
            line = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
            print(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            for px, py in points:
                print(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>')
    for index, service in enumerate(services):
        at = LEFT + index * 170
        print(f'<rect x="{at}" y="{TOP + HEIGHT + 35}" width="12" height="12" '
              f'fill="{COLOURS[index % len(COLOURS)]}"/>')
        print(f'<text x="{at + 18}" y="{TOP + HEIGHT + 45}">{service}</text>')
    print("</svg>")


main()
