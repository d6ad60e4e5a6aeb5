//! The report: one page that needs no other file.

use std::fmt::Write;

use super::svg::{chart, escape};
use super::Results;

/// The page.
pub(super) fn page(results: &Results) -> String {
    let mut page = String::from(
        "<!doctype html><meta charset=\"utf-8\"><title>Dunlin lab</title>\n<style>body{font:15px sans-serif;max-width:980px;margin:2em auto}\
         td,th{padding:2px 8px;text-align:left;border-bottom:1px solid #ddd}.miss{color:#b00}svg{max-width:640px}</style>\n\
         <h1>Dunlin lab</h1><p>Figures of the papers on the simulated cluster.</p>\n",
    );
    for (figure, findings) in results {
        let _ = writeln!(
            page,
            "<h2>{}</h2><p><b>The paper:</b> {}</p>{}",
            escape(figure.title),
            escape(figure.says),
            chart(findings)
        );
        page.push_str("<table><tr><th>claim<th>paper<th>ours<th>tolerance<th>verdict<th>what\n");
        for answer in &findings.answers {
            let (class, verdict) = if answer.within {
                ("within", "within")
            } else {
                ("miss", "miss")
            };
            let _ = writeln!(
                page,
                "<tr class=\"{class}\"><td>{}<td>{}<td>{:.2}<td>{} .. {}<td>{verdict}<td>{}",
                escape(answer.id),
                escape(&answer.paper),
                answer.ours,
                answer.bounds.0,
                answer.bounds.1,
                escape(&answer.why)
            );
        }
        page.push_str("</table>\n");
    }
    page
}
