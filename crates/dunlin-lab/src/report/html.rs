//! The report: one self-contained page.

use std::fmt::Write;

use super::svg::{chart, escape};
use super::{bounds, Results};
use crate::claims::id_of;
use crate::score::{Row, Scorecard, Verdict};

const HEAD: &str =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Dunlin lab</title>\n\
<style>body{font:15px sans-serif;max-width:980px;margin:2em auto;padding:0 1em}\
td,th{padding:2px 8px;text-align:left;border-bottom:1px solid #ddd;vertical-align:top}\
.miss{color:#b00}.not-run{color:#777}svg{max-width:640px;width:100%}\
.beside{display:flex;flex-wrap:wrap;gap:1em}.beside>div{flex:1 1 260px}</style>\n\
<h1>Dunlin lab</h1><p>Figures of the papers on the simulated cluster.</p>\n";

/// The page.
pub(super) fn page(results: &Results, card: &Scorecard) -> String {
    let mut page = String::from(HEAD);
    let parameters = &card.parameters;
    let (s, p) = (card.summary, card.predictions);
    let _ = writeln!(
        page,
        "<p>At their first run {} predictions were within and {} missed. Today, explanations included: of {} rows {} are within, {} miss, {} were not run; of the predictions {} are within, {} miss, {} were not run. \
         Parameters <code>{}</code>, {}.</p>",
        card.first_run.within,
        card.first_run.miss,
        card.rows.len(),
        s.within,
        s.miss,
        s.not_run,
        p.within,
        p.miss,
        p.not_run,
        escape(&parameters.hash),
        if !parameters.replaced.is_empty() {
            "<b class=\"miss\">not the papers'</b>: no claim was judged".to_owned()
        } else if parameters.changed.is_empty() {
            format!("frozen {}", parameters.frozen)
        } else {
            format!("<b class=\"miss\">not frozen</b>: {}", escape(&parameters.changed.join("; ")))
        }
    );
    for failed in &card.failed {
        let failed = escape(&failed.to_string());
        let _ = writeln!(page, "<p class=\"miss\">Could not be run: {failed}</p>");
    }
    if !card.complete && card.failed.is_empty() {
        page.push_str(
            "<p class=\"miss\">Not complete: figures that were asked for were left out.</p>\n",
        );
    }
    for (figure, findings) in results {
        let _ = writeln!(
            page,
            "<h2 id=\"{}\">{}</h2><div class=\"beside\">{}<div><b>The paper:</b> {}</div></div>",
            figure.name,
            escape(figure.title),
            chart(findings),
            escape(figure.says)
        );
        let names: Vec<&str> = findings.answers.iter().map(|a| a.id.as_str()).collect();
        let here = card.rows.iter().filter(|row| {
            names
                .iter()
                .any(|name| id_of(name) == row.id || *name == row.id)
        });
        table(&mut page, here);
    }
    page.push_str("<h2>All claims</h2>\n");
    table(&mut page, card.rows.iter());
    page
}

fn table<'a>(page: &mut String, rows: impl Iterator<Item = &'a Row>) {
    page.push_str(
        "<table><tr><th>claim<th>class<th>paper<th>ours<th>tolerance<th>verdict<th>what\n",
    );
    for row in rows {
        let class = match row.verdict {
            Verdict::Within => "within",
            Verdict::Miss => "miss",
            Verdict::NotRun => "not-run",
        };
        let line = |page: &mut String, id: &str, paper: &str, ours: Option<f64>, tolerance, why| {
            let ours = ours.map_or(String::new(), |ours| format!("{ours:.2}"));
            let _ = writeln!(
                page,
                "<tr class=\"{class}\"><td>{}<td>{:?}<td>{}<td>{ours}<td>{}<td>{class}<td>{}",
                escape(id),
                row.class,
                escape(paper),
                bounds(tolerance),
                escape(why)
            );
        };
        line(page, &row.id, &row.paper, row.ours, row.tolerance, &row.why);
        for part in row.parts.iter().filter(|part| part.why != row.why) {
            line(
                page,
                &part.id,
                "",
                part.ours,
                Some(part.tolerance),
                &part.why,
            );
        }
    }
    page.push_str("</table>\n");
}
