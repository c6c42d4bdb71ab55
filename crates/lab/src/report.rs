//! The result as JSON, as a table for the terminal, and as one HTML file with its plots inside.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::experiment::{LabError, Map, Series};
use crate::run::{Finding, Row};

/// Writes `NAME.json` and `NAME.html` into `folder`; returns the HTML file.
pub fn write(finding: &Finding, folder: &Path) -> Result<PathBuf, LabError> {
    let json = serde_json::to_vec_pretty(finding)
        .map_err(|error| LabError::Failed(format!("cannot write the result: {error}")))?;
    let save = |name: String, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes)
            .map_err(LabError::system(format!("cannot write {}", path.display())))?;
        Ok(path)
    };
    save(format!("{}.json", finding.experiment), &json)?;
    save(
        format!("{}.html", finding.experiment),
        html(finding)?.as_bytes(),
    )
}

/// The rows but for details, aligned.
pub fn table(finding: &Finding) -> String {
    let rows = || finding.rows.iter().filter(|row| !row.is_detail);
    let name_width = rows()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    if let Some(peer) = finding.peer {
        let _ = writeln!(
            text,
            "{:<name_width$}  {:>12} {:<22} {peer:>12} {:>8}  goal",
            "", "Thalweg", "", "ratio"
        );
    }
    for row in rows() {
        let holds = match row.holds {
            Some(true) => "holds",
            Some(false) => "MISSED",
            None => "",
        };
        let goal = row.goal.as_deref().unwrap_or("");
        let peer = match (&row.peer, finding.peer) {
            (Some(peer), _) => format!("{:>12} {:>8}  ", figure(peer.value), figure(peer.ratio)),
            (None, Some(_)) => " ".repeat(23),
            (None, None) => String::new(),
        };
        let line = format!(
            "{:<name_width$}  {:>12} {:<12} ±{:>4.0} %  {peer}{goal:<12} {holds}",
            row.name,
            figure(row.value),
            row.unit,
            row.summary.spread() * 100.0,
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    for note in notes(finding) {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn html(finding: &Finding) -> Result<String, LabError> {
    let mut page = String::new();
    let host = &finding.host;
    write!(
        page,
        "<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title><style>{STYLE}</style>\
         <h1>{name}</h1><p>{method}</p><p class=host>{processor}, {cores} cores, {memory:.0} GiB, \
         kernel {kernel}, TCP {tcp}, load {load:.2}; disk sync {sync:.0} µs (4 KiB), \
         {write:.0} MB/s (1 MiB, synced at the end){held}; thalweg {version}{quick}</p>",
        name = escape(finding.experiment),
        method = escape(finding.method),
        processor = escape(&host.processor),
        cores = host.cores,
        memory = host.memory_bytes as f64 / f64::from(1 << 30),
        kernel = escape(&host.kernel),
        tcp = escape(&host.tcp_congestion_control),
        load = host.load_average,
        sync = host.disk_sync_us,
        write = host.disk_write_bytes_per_s / 1e6,
        held = finding
            .disk_rate_mb_per_s
            .map_or_else(String::new, |rate| format!(", held to {rate} MB/s")),
        version = escape(&finding.version),
        quick = if finding.quick { ", short form" } else { "" },
    )
    .map_err(broken)?;
    let peer = finding
        .peer
        .map_or_else(String::new, |peer| format!("<th>{}<th>Ratio", escape(peer)));
    write!(
        page,
        "<table><tr><th>Measure<th>Median<th>Unit<th>Least<th>Most{peer}<th>Published<th>Goal<th>\
         </tr>"
    )
    .map_err(broken)?;
    for row in &finding.rows {
        page.push_str(&html_row(row, finding.peer.is_some()));
    }
    page.push_str("</table>");
    for note in notes(finding) {
        write!(page, "<p class=host>Note: {}</p>", escape(note)).map_err(broken)?;
    }
    for map in finding
        .runs
        .get(finding.runs.len() / 2)
        .iter()
        .flat_map(|run| &run.maps)
    {
        page.push_str(&heat_map(map));
    }
    for lines in plots(finding) {
        write!(page, "<h2>{}</h2>{}", escape(&lines[0].plot), plot(&lines)?).map_err(broken)?;
    }
    page.push_str("</html>\n");
    Ok(page)
}

fn html_row(row: &Row, has_peer: bool) -> String {
    let reference = row
        .reference
        .as_ref()
        .map_or_else(String::new, |reference| {
            format!(
                "{} <small>{}</small>",
                figure(reference.value),
                escape(reference.source)
            )
        });
    let peer = match &row.peer {
        Some(peer) => format!(
            "<td class=number>{}<td class=number>{}",
            figure(peer.value),
            figure(peer.ratio)
        ),
        None if has_peer => "<td><td>".to_owned(),
        None => String::new(),
    };
    let verdict = match row.holds {
        Some(true) => "<td class=good>holds",
        Some(false) => "<td class=bad>missed",
        None => "<td>",
    };
    format!(
        "<tr{}><td>{}<td>{}<td>{}<td>{}<td>{}{peer}<td>{reference}<td>{}{verdict}</tr>",
        if row.is_detail { " class=detail" } else { "" },
        escape(&row.name),
        figure(row.value),
        escape(row.unit),
        figure(row.summary.min),
        figure(row.summary.max),
        row.goal.as_deref().unwrap_or(""),
    )
}

/// The runs' notes, each once.
fn notes(finding: &Finding) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for note in finding.runs.iter().flat_map(|run| &run.notes) {
        if !all.contains(&note.as_str()) {
            all.push(note);
        }
    }
    all
}

/// The series of the middle run, by plot, in order of appearance.
fn plots(finding: &Finding) -> Vec<Vec<&Series>> {
    let mut plots: Vec<Vec<&Series>> = Vec::new();
    let Some(run) = finding.runs.get(finding.runs.len() / 2) else {
        return plots;
    };
    for series in &run.series {
        match plots.iter_mut().find(|lines| lines[0].plot == series.plot) {
            Some(lines) => lines.push(series),
            None => plots.push(vec![series]),
        }
    }
    plots
}

/// A table whose cells are the darker the higher they stand between nothing and the highest, on a
/// scale of decades, so that small differences of large values show less than large ones.
fn heat_map(map: &Map) -> String {
    let most = map
        .values
        .iter()
        .flatten()
        .copied()
        .filter(|value| value.is_finite());
    let most = most.fold(1.0, f64::max);
    let mut text = format!("<h2>{}</h2><table class=map><tr><th>", escape(&map.name));
    for column in &map.columns {
        let _ = write!(text, "<th>{}", escape(column));
    }
    for (row, values) in map.rows.iter().zip(&map.values) {
        let _ = write!(text, "<tr><th>{}", escape(row));
        for value in values {
            if value.is_finite() {
                let share = (1.0 + (value.max(most / 100.0) / most).log10() / 2.0).clamp(0.0, 1.0);
                let _ = write!(
                    text,
                    "<td class=number style=\"background:rgba(10,126,164,{share:.2})\">{}",
                    figure(*value)
                );
            } else {
                text.push_str("<td>");
            }
        }
    }
    text.push_str("</table>");
    text
}

/// One plot; its first line names the axes.
fn plot(lines: &[&Series]) -> Result<String, LabError> {
    let mut svg = String::new();
    let points = || lines.iter().flat_map(|series| &series.points);
    let width = points().map(|point| point.0).fold(1.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max).max(1e-9);
    {
        let area = SVGBackend::with_string(&mut svg, (860, 300)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(8)
            .x_label_area_size(32)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..width, 0.0..most * 1.08)
            .map_err(broken)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc(lines[0].along.as_str())
            .y_desc(lines[0].unit.as_str())
            .draw()
            .map_err(broken)?;
        for (index, series) in lines.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            chart
                .draw_series(LineSeries::new(
                    series.points.iter().copied(),
                    color.stroke_width(2),
                ))
                .map_err(broken)?
                .label(series.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .draw()
            .map_err(broken)?;
        area.present().map_err(broken)?;
    }
    Ok(svg)
}

fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 1000.0 => {
            let whole = format!("{:.0}", value.abs());
            let mut grouped = String::new();
            for (index, digit) in whole.chars().enumerate() {
                if index > 0 && (whole.len() - index).is_multiple_of(3) {
                    grouped.push(',');
                }
                grouped.push(digit);
            }
            if value < 0.0 {
                format!("-{grouped}")
            } else {
                grouped
            }
        }
        middle if middle >= 10.0 || value == value.trunc() => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn broken(error: impl std::fmt::Display) -> LabError {
    LabError::Failed(format!("cannot draw the report: {error}"))
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;\
padding:0 1rem;color:#16242c}h1{color:#0a7ea4}table{border-collapse:collapse;width:100%}\
th,td{padding:.3rem .6rem;border-bottom:1px solid #dde5e9;text-align:left;white-space:nowrap}\
td:first-child{white-space:normal}\
td:nth-child(2),td:nth-child(4),td:nth-child(5),.number{text-align:right;\
font-variant-numeric:tabular-nums}.detail{color:#5b6b75;font-size:.85em}\
.host,small{color:#5b6b75}.good{color:#15803d}.bad{color:#b91c1c;font-weight:600}svg{max-width:100%}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        assert_eq!(figure(1_234_567.0), "1,234,567");
        assert_eq!(figure(12.34), "12");
        assert_eq!(figure(0.125), "0.12");
        assert_eq!(figure(3.0), "3");
    }
}
