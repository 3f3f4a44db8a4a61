//! How figures grow with tenants, records and connections: three small curves in one SVG.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::data::{self, Data};
use crate::process::Process;
use crate::sections::{data_dir, get, load_gets, scattered, tenant_file};
use crate::table::{Table, thousands};
use crate::{Settings, table};

/// One curve: what is counted along the bottom, and how many answers a second there were.
#[derive(Debug, Default)]
struct Curve {
    name: &'static str,
    points: Vec<(f64, f64)>,
}

/// One diagram: its curves share both axes.
#[derive(Debug)]
struct Diagram {
    title: &'static str,
    curves: Vec<Curve>,
}

/// Measures all curves, adds their points to the table, and draws them where that was asked for.
pub(crate) fn growth(settings: &Settings, table: &mut Table) -> io::Result<()> {
    let diagrams = [by_tenants(settings)?, by_records(settings)?, by_connections(settings)?];
    for diagram in &diagrams {
        for curve in &diagram.curves {
            let points = curve
                .points
                .iter()
                .map(|(at, rate)| format!("{}: {}", thousands(*at), thousands(*rate)));
            table.note(
                &format!("{}/s, {}", curve.name, diagram.title),
                points.collect::<Vec<_>>().join(" · "),
            );
        }
    }
    settings.chart.as_deref().map_or(Ok(()), |path| std::fs::write(path, draw(&diagrams)))
}

/// The middle of the rounds.
fn rate(
    settings: &Settings,
    process: &Process,
    connections: usize,
    requests: &[Vec<u8>],
) -> io::Result<f64> {
    let rates = (0..settings.rounds)
        .map(|_| Ok(load_gets(process, connections, settings.time, requests)?.rate()));
    Ok(table::median(rates.collect::<io::Result<_>>()?))
}

fn by_tenants(settings: &Settings) -> io::Result<Diagram> {
    let mut curve = Curve { name: "GET one record", points: Vec::new() };
    for count in [1, 10, 100, 1_000, 10_000] {
        let data_dir = data_dir()?;
        let data = Data::make(&data_dir.path().join("data"), count, 20)?;
        rustix::fs::sync();
        let server = Process::serve(&data.dir)?;
        let mut tenant = scattered(count);
        let requests: Vec<_> = (0..20_000)
            .map(|n| get(&data.keys[tenant()], &format!("/customers.php?id={}", n % 20 + 1)))
            .collect();
        curve.points.push((count as f64, rate(settings, &server, 32, &requests)?));
    }
    Ok(Diagram { title: "tenants, evenly asked", curves: vec![curve] })
}

fn by_records(settings: &Settings) -> io::Result<Diagram> {
    let targets = [
        ("GET one record", ""),
        ("GET a page of 50", "/customers.php?sort=name"),
        ("GET q=bakery", "/customers.php?q=bakery"),
    ];
    let mut curves = targets.map(|(name, _)| Curve { name, points: Vec::new() });
    let data_dir = data_dir()?;
    let data = Data::make(&data_dir.path().join("data"), 1, 0)?;
    let mut filled = 0;
    for count in [100, 1_000, 10_000, 100_000, 1_000_000] {
        if count > 100_000 && !settings.full {
            break;
        }
        data::fill(&tenant_file(&data, 1), filled, count).map_err(io::Error::other)?;
        rustix::fs::sync();
        filled = count;
        let server = Process::serve(&data.dir)?;
        let mut id = scattered(count as usize);
        let one: Vec<_> = (0..10_000)
            .map(|_| get(&data.keys[0], &format!("/customers.php?id={}", id() + 1)))
            .collect();
        for (curve, (_, target)) in curves.iter_mut().zip(targets) {
            let requests =
                if target.is_empty() { one.clone() } else { vec![get(&data.keys[0], target)] };
            curve.points.push((count as f64, rate(settings, &server, 32, &requests)?));
        }
    }
    Ok(Diagram { title: "records of one tenant", curves: curves.into() })
}

fn by_connections(settings: &Settings) -> io::Result<Diagram> {
    let data_dir = data_dir()?;
    let data = Data::make(&data_dir.path().join("data"), 1, 1_000)?;
    let server = Process::serve(&data.dir)?;
    let one: Vec<_> =
        (1..=1_000).map(|id| get(&data.keys[0], &format!("/customers.php?id={id}"))).collect();
    let mut curve = Curve { name: "GET one record", points: Vec::new() };
    for count in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        curve.points.push((count as f64, rate(settings, &server, count, &one)?));
    }
    Ok(Diagram { title: "connections", curves: vec![curve] })
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 240.0;
const COLOURS: [&str; 3] = ["#0b6e99", "#b3541e", "#4b7f2c"];

/// The diagrams side by side; the bottom axis by powers, the other from nothing.
fn draw(diagrams: &[Diagram]) -> String {
    let (width, height) = (WIDTH * diagrams.len() as f64, HEIGHT + 30.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"10\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (number, diagram) in diagrams.iter().enumerate() {
        let _ = writeln!(svg, "<g transform=\"translate({} 0)\">", WIDTH * number as f64);
        draw_one(&mut svg, diagram);
        svg.push_str("</g>\n");
    }
    let _ = writeln!(
        svg,
        "<text x=\"10\" y=\"{}\" fill=\"#666\">{}</text>\n</svg>",
        height - 8.0,
        footnote()
    );
    svg
}

fn draw_one(svg: &mut String, diagram: &Diagram) {
    let (left, right, top, bottom) = (50.0, WIDTH - 15.0, 45.0, HEIGHT - 40.0);
    let points = || diagram.curves.iter().flat_map(|curve| &curve.points);
    let highest = points().map(|(_, rate)| *rate).fold(1.0, f64::max);
    let step = nice_step(highest);
    let ceiling = (highest / step).ceil() * step;
    let (first, last) =
        points().fold((f64::MAX, 1.0_f64), |(low, high), (at, _)| (low.min(*at), high.max(*at)));
    let x = |at: f64| left + (right - left) * (at / first).ln() / (last / first).ln().max(1e-9);
    let y = |rate: f64| bottom - (bottom - top) * rate / ceiling;
    let _ = writeln!(
        svg,
        "<text x=\"{left}\" y=\"16\" font-size=\"12\">answers a second by {}</text>",
        diagram.title
    );
    let mut mark = 0.0;
    while mark <= ceiling {
        let at = y(mark);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 4.0,
            at + 3.0,
            thousands(mark)
        );
        mark += step;
    }
    for (at, _) in diagram.curves.first().map(|curve| &curve.points[..]).unwrap_or_default() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(*at),
            bottom + 14.0,
            short(*at)
        );
    }
    for (number, (curve, colour)) in diagram.curves.iter().zip(COLOURS).enumerate() {
        let line: Vec<String> = curve
            .points
            .iter()
            .map(|(at, rate)| format!("{:.1},{:.1}", x(*at), y(*rate)))
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n<text x=\"{}\" y=\"32\" fill=\"{colour}\">{}</text>",
            line.join(" "),
            left + 85.0 * number as f64,
            curve.name
        );
    }
}

/// A step of 1, 2 or 5 times a power of ten, four to eight of which make `highest`.
fn nice_step(highest: f64) -> f64 {
    let power = 10_f64.powf((highest / 4.0).log10().floor());
    let digit = highest / 4.0 / power;
    power
        * if digit >= 5.0 {
            5.0
        } else if digit >= 2.0 {
            2.0
        } else {
            1.0
        }
}

/// `10k`, `1M`.
fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.0}M", n / 1e6),
        n if n >= 1e3 => format!("{:.0}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

/// The machine, the date and the command.
fn footnote() -> String {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let model =
        processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let date = tenantdesk::clock::Clock::system().now().date();
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    format!(
        "{} ({cores} cores, shared with the load), Linux {}, {date}; cargo bench --bench http -- {}",
        model.map_or("unknown processor", |(_, name)| name).trim(),
        kernel.trim(),
        arguments.join(" ")
    )
}
