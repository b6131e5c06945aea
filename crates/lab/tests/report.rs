//! The report of a run that never was: samples of every scenario of the laboratory, made of a seed.

mod made_up;

use lab::report::{self, Input, Server};
use lab::results::Results;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

fn page(results: Results, calibration: Option<Vec<lab::calibration::Check>>) -> String {
    let files = report::render(&Input::new(results, calibration).unwrap()).unwrap();
    files.into_iter().find(|(name, _)| *name == "index.html").unwrap().1
}

/// A directory of this test, whose files stay for inspection.
fn directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    made_up::write(&made_up::run(), &dir);
    dir
}

#[test]
fn every_scenario_and_every_finding_has_its_place_in_the_report() {
    let html = page(made_up::run(), Some(made_up::calibration()));
    for scenario in lab::scenario::built_in().unwrap() {
        assert!(
            html.contains(&format!("<span class=\"id\">{}</span>", scenario.id)),
            "{}",
            scenario.id
        );
    }
    for finding in lab::findings::published().unwrap().finding {
        assert!(html.contains(&format!("id=\"f-{}\"", finding.id)), "{}", finding.id);
    }
    for part in [
        "<svg",
        "Figure 1.",
        "ovs-vsctl add-br",
        "Where packets were lost",
        "policer",
        "✗ contradicted",
        "✓ within",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn only_findings_without_checks_are_called_not_judged() {
    let html = page(made_up::run(), None);
    for finding in lab::findings::published().unwrap().finding {
        let (_, shown) = html.split_once(&format!("id=\"f-{}\"", finding.id)).unwrap();
        let shown = shown.split("<div class=\"finding\"").next().unwrap();
        let shown = shown.split("</section>").next().unwrap();
        let is_judged = !finding.checks.is_empty();
        assert_eq!(shown.contains("Not judged: "), !is_judged, "{}", finding.id);
        assert_eq!(shown.contains("The numbers that decide"), is_judged, "{}", finding.id);
        assert_eq!(
            shown.contains("class=\"notes\""),
            finding.why.is_some(),
            "{}",
            finding.id
        );
    }
}

#[test]
fn every_scenario_shows_its_testbed_and_no_drawing_is_empty() {
    let html = page(made_up::run(), None);
    for drawing in html.split("<figure class=\"testbed\">").skip(1) {
        let drawing = drawing.split("</figure>").next().unwrap();
        assert!(drawing.contains("<rect"), "{drawing}");
    }
    let sections: Vec<&str> = html.split("<span class=\"id\">").skip(1).collect();
    for scenario in lab::scenario::built_in().unwrap() {
        let own = |section: &&&str| section.starts_with(&format!("{}</span>", scenario.id));
        let own = sections.iter().find(own).unwrap();
        assert!(own.contains("<figure class=\"testbed\">"), "{}", scenario.id);
    }
    let own = sections
        .iter()
        .find(|section| section.starts_with("S1.mininet<"))
        .unwrap();
    for text in [">s1<", ">h3<", ">10.0.0.1/8<", "Mininet is asked to give"] {
        assert!(own.contains(text), "{text}");
    }
}

#[test]
fn what_was_not_run_says_so_with_its_reason() {
    let mut results = made_up::run();
    results.samples.clear();
    let html = page(results, None);
    assert!(html.contains("needs openvswitch.ko, which this kernel does not have"));
    assert!(html.contains("No sample was taken.") && html.contains("oxvs lab calibrate"));
    let mut nothing = made_up::run();
    nothing.samples.clear();
    nothing.run.scenarios.clear();
    assert!(page(nothing, None).contains("This run did not include it."));
}

#[test]
fn the_page_loads_nothing_and_runs_nothing_and_text_of_a_run_cannot_change_that() {
    let mut results = made_up::run();
    let bad = "</pre><script src=http://x.test/></script>\"'&";
    results.run.machine.cpu = bad.into();
    results.run.systems.insert("oxvs".into(), bad.into());
    for sample in &mut results.samples {
        sample.remarks.push(bad.into());
        sample.system = format!("{}{bad}", sample.system);
    }
    for (_, _, text) in &mut results.configurations {
        *text = bad.into();
    }
    for skipped in &mut results.skipped {
        skipped.reason = bad.into();
    }
    let html = page(results, None);
    for forbidden in ["<script", "<link", "<img", "src=\"", "@import", "url(", "javascript:"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn samples_that_turn_a_result_turn_the_verdict() {
    let verdict = |factor: f64| {
        let mut results = made_up::run();
        // Reverses the effect: the transferred bytes fall with the window.
        for sample in results
            .samples
            .iter_mut()
            .filter(|sample| sample.scenario.starts_with("S1."))
        {
            let window: f64 = sample
                .at
                .get("window")
                .and_then(|window| window.parse().ok())
                .unwrap_or(2048.0);
            for value in sample.metrics.values_mut() {
                *value = 1e8 * window.powf(factor) * (1.0 + 0.001 * f64::from(sample.repetition));
            }
        }
        let files = report::render(&Input::new(results, None).unwrap()).unwrap();
        let (_, text) = files.iter().find(|(name, _)| *name == "verdicts.json").unwrap();
        let rows: serde_json::Value = serde_json::from_str(text).unwrap();
        let row = rows.as_array().unwrap().iter().find(|row| row["id"] == "S1.1").unwrap();
        let of_ours = row["here"]
            .as_array()
            .unwrap()
            .iter()
            .find(|mark| mark["system"] == "oxvs")
            .unwrap();
        of_ours["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict(0.5), "holds");
    assert_eq!(verdict(-0.5), "refuted");
}

#[test]
fn what_the_bridge_does_by_itself_turns_no_verdict_on_another_switch() {
    let verdict = |bridge: f64| {
        let mut results = made_up::run();
        for sample in results
            .samples
            .iter_mut()
            .filter(|sample| sample.scenario == "S3.match")
        {
            let factor = if sample.system == "bridge" && sample.at.get("match").is_some_and(|m| m == "mac") {
                bridge
            } else {
                1.0
            };
            for value in sample.metrics.values_mut() {
                *value = 0.1 * factor * (1.0 + 0.001 * f64::from(sample.repetition));
            }
        }
        let files = report::render(&Input::new(results, None).unwrap()).unwrap();
        let (_, text) = files.iter().find(|(name, _)| *name == "verdicts.json").unwrap();
        let rows: serde_json::Value = serde_json::from_str(text).unwrap();
        rows.as_array()
            .unwrap()
            .iter()
            .find(|row| row["id"] == "S3.1")
            .unwrap()
            .clone()
    };
    let row = verdict(5.0);
    let ours = row["here"]
        .as_array()
        .unwrap()
        .iter()
        .find(|mark| mark["system"] == "oxvs")
        .unwrap();
    assert_eq!(ours["text"], "holds", "{row:#}");
    // Its numbers have its own name, not that of the switch that it replaces.
    assert!(
        ours["evidence"][0]["text"].as_str().unwrap().starts_with("oxvs: "),
        "{row:#}"
    );
}

#[test]
fn a_tunnel_is_judged_beside_open_vswitch_where_both_have_results() {
    let verdict = |ours: f64| {
        let mut results = made_up::run();
        for sample in results.samples.iter_mut().filter(|s| s.scenario == "S5.overlay") {
            if sample.system == "ovs-userspace" {
                sample.system = "ovs-tso".to_owned();
            }
            let factor = if sample.system == "oxvs" { ours } else { 1.0 };
            let factor = factor * (1.0 + 0.001 * f64::from(sample.repetition));
            sample.metrics.values_mut().for_each(|value| *value = factor);
        }
        results
            .samples
            .retain(|s| s.scenario != "S5.overlay" || s.system != "ovs-tso" || s.at["underlay"] == "native");
        results.skipped.push(lab::results::Skipped {
            scenario: "S5.overlay".to_owned(),
            system: "ovs-tso".to_owned(),
            at: [("underlay".to_owned(), "host".to_owned())].into(),
            reason: "it sends tunnels' packets through its own bridges only".to_owned(),
            failed: false,
        });
        let files = report::render(&Input::new(results, None).unwrap()).unwrap();
        let (_, text) = files.iter().find(|(name, _)| *name == "verdicts.json").unwrap();
        let rows: serde_json::Value = serde_json::from_str(text).unwrap();
        let row = rows
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["id"] == "S5.12")
            .unwrap();
        let mark = |system: &str| {
            let marks = row["here"].as_array().unwrap();
            marks.iter().find(|mark| mark["system"] == system).unwrap()["text"].clone()
        };
        [mark("oxvs"), mark("Linux bridge")].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(verdict(9.0), ["holds", "not testable here"]);
    assert_eq!(verdict(7.0), ["refuted", "not testable here"]);
}

#[test]
fn every_sample_is_in_the_data_beside_the_page() {
    let results = made_up::run();
    let metrics: usize = results
        .samples
        .iter()
        .map(|sample| sample.metrics.len() + sample.cpu.len() + 1)
        .sum();
    let dir = directory("report-data");
    let page = report::write(&dir).unwrap();
    assert_eq!(page, dir.join("report/index.html"));
    let read = |name: &str| std::fs::read_to_string(dir.join("report").join(name)).unwrap();
    let mut csv = csv::Reader::from_reader(read("samples.csv").leak().as_bytes());
    assert_eq!(csv.records().map(Result::unwrap).count(), metrics);
    let json: serde_json::Value = serde_json::from_str(&read("samples.json")).unwrap();
    assert_eq!(json["samples"].as_array().unwrap().len(), results.samples.len());
    assert!(read("losses.csv").contains("policer") && read("distributions.csv").lines().count() > 100);
}

#[test]
fn figures_can_be_had_as_files_that_stand_alone() {
    let dir = directory("report-figures");
    let paths = report::figures(&dir, &dir.join("figures"), &[]).unwrap();
    assert!(paths.len() > 20);
    let one = report::figures(&dir, &dir.join("one"), &["S0.rtt.l3-1".into()]).unwrap();
    assert_eq!(one, [dir.join("one/S0.rtt.l3-1.svg")]);
    let error = report::figures(&dir, &dir.join("one"), &["S0.none-1".into()]).unwrap_err();
    assert!(error.to_string().contains("no figure 'S0.none-1'"), "{error}");
    for path in paths {
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(
            svg.starts_with("<svg xmlns=") && svg.contains("prefers-color-scheme"),
            "{}",
            path.display()
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", path.display());
    }
    // Estimates and the bound that theory gives are in one drawing.
    let bounded = std::fs::read_to_string(dir.join("figures/S5.visibility-2.svg")).unwrap();
    for part in [
        "The dashed line is what 95 % of estimates stay within.",
        "class=\"line print\"",
        ">What 95 % of estimates stay within</text>",
        "Error of the number of datagrams",
    ] {
        assert!(bounded.contains(part), "{part}");
    }
}

/// A script that lets a page in a browser report on itself: elements that overflow outside a
/// scrolling container, texts clipped by their figure, shapes without a colour, the number of
/// visible figures and tables, and the smallest text of a figure.
const LOOK: &str = r#"<pre id="seen"></pre><script>
const page = document.documentElement, wide = page.clientWidth, over = [], cut = [];
const within = element => element.closest('.scroll, .panel, pre');
for (const element of document.body.querySelectorAll('*')) {
  const box = element.getBoundingClientRect();
  if (box.width && (box.right > wide + 1 || box.left < -1) && (!within(element) || within(element) === element))
    over.push(element.tagName + '.' + (element.getAttribute('class') || '') + ' ' + element.textContent.slice(0, 30));
}
let figures = 0, least = 99;
for (const svg of document.querySelectorAll('figure svg[role=img]')) {
  const box = svg.getBoundingClientRect();
  if (!box.width) continue;
  if (box.width > 100 && box.height > 30) figures++;
  for (const drawn of svg.querySelectorAll('line, polyline, rect, circle, path')) {
    const style = getComputedStyle(drawn);
    if (style.stroke === 'none' && style.fill === 'none') cut.push('unseen ' + drawn.getAttribute('class'));
    if (drawn.tagName === 'line' && style.stroke === 'none') cut.push('unseen ' + drawn.getAttribute('class'));
  }
  for (const text of svg.querySelectorAll('text')) {
    const own = text.getBoundingClientRect();
    least = Math.min(least, parseFloat(getComputedStyle(text).fontSize) * box.width / svg.viewBox.baseVal.width);
    if (own.right > box.right + 2 || own.left < box.left - 2 || own.bottom > box.bottom + 2 || own.top < box.top - 2)
      cut.push(text.textContent + ' in ' + svg.getAttribute('aria-label'));
  }
}
const tables = [...document.querySelectorAll('table')].filter(table => table.getBoundingClientRect().height > 20).length;
document.getElementById('seen').textContent = JSON.stringify({
  scroll: page.scrollWidth - wide, over, cut, figures, least, tables, paper: getComputedStyle(document.body).backgroundColor });
</script></body>"#;

#[test]
fn a_browser_shows_figures_and_tables_on_a_phone_and_on_a_screen_and_nothing_overflows() {
    testkit::skip!(unless "chromium-headless-shell");
    let dir = directory("report-seen");
    let page = std::fs::read_to_string(report::write(&dir).unwrap()).unwrap();
    let seen = dir.join("seen.html");
    std::fs::write(&seen, page.replace("</body>", LOOK)).unwrap();
    let look = |width: u32, dark: u32| -> serde_json::Value {
        let profile = tempfile::tempdir().unwrap();
        let size = format!("--window-size={width},900");
        let scheme = format!("--blink-settings=preferredColorScheme={}", 1 - dark);
        let data = format!("--user-data-dir={}", profile.path().display());
        let url = format!("file://{}", seen.display());
        let command = [
            "chromium-headless-shell",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            &size,
            &scheme,
            &data,
            "--dump-dom",
            &url,
        ];
        let dom = testkit::run(&command);
        let start = dom.find("<pre id=\"seen\">").unwrap() + 15;
        let text = dom[start..].split("</pre>").next().unwrap();
        serde_json::from_str(&text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).unwrap()
    };
    let none = serde_json::json!([]);
    let scenarios = lab::scenario::built_in().unwrap().len() as u64;
    for (width, dark) in [(360, 0), (1280, 1)] {
        let seen = look(width, dark);
        assert_eq!(seen["over"], none, "beyond the page at {width}");
        assert_eq!(seen["cut"], none, "cut off at {width}");
        assert_eq!(seen["scroll"], 0, "{width}");
        assert!(
            seen["figures"].as_u64().unwrap() > 2 * scenarios && seen["tables"].as_u64().unwrap() > scenarios,
            "{seen}"
        );
        assert!(seen["least"].as_f64().unwrap() > 7.5, "{seen}");
        assert_eq!(seen["paper"] == "rgb(255, 255, 255)", dark == 0, "{seen}");
    }
}

fn ask(url: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://").trim_end_matches('/')).unwrap();
    // The server may answer and close before all of a request is written.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_report_is_served_and_made_anew_when_the_run_has_gone_on() {
    let dir = directory("report-served");
    let server = Server::bind(&dir, 0).unwrap();
    let url = server.url().unwrap();
    std::thread::spawn(move || server.run());
    let get = |path: &str| {
        ask(
            &url,
            format!("GET {path} HTTP/1.1\r\nHost: localhost:1\r\n\r\n").as_bytes(),
        )
    };
    let first = get("/");
    assert!(
        first.starts_with("HTTP/1.1 200 OK\r\n") && first.contains("text/html") && first.ends_with("</html>\n"),
        "{first:.300}"
    );
    assert!(get("/samples.csv?x=1").contains("text/csv"));
    let head = ask(&url, b"HEAD /index.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.ends_with("\r\n\r\n"),
        "{head:.300}"
    );

    let mut changed = made_up::run();
    changed.samples.truncate(7);
    made_up::write(&changed, &dir);
    assert!(get("/").contains("<p class=\"lead\">7 samples from"));
    std::fs::write(dir.join("run.json"), "{").unwrap();
    assert!(get("/").starts_with("HTTP/1.1 503 "));
}

#[test]
fn hostile_requests_are_refused() {
    let dir = directory("report-hostile");
    std::fs::write(dir.join("secret"), "secret").unwrap();
    let server = Server::bind(&dir, 0).unwrap();
    let url = server.url().unwrap();
    std::thread::spawn(move || server.run());
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    let cases: [(&[u8], &str); 12] = [
        (b"GET /../secret HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        (b"GET /%2e%2e/secret HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        (b"GET //etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", "404"),
        (b"GET secret HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        (b"GET http://x.test/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "400"),
        (
            b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx",
            "405",
        ),
        (b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "403"),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"GET /\r\n\r\n", "400"),
        (b"\x00\xff\xfe\r\n\r\n", "400"),
        (b"", "400"),
        (long.as_bytes(), "431"),
    ];
    for (request, status) in cases {
        let answer = ask(&url, request);
        // Where unread data is left the answer may be lost with the connection; nothing is served
        // either way.
        let refused = answer.starts_with(&format!("HTTP/1.1 {status} ")) || (answer.is_empty() && request.len() > 8192);
        assert!(
            refused && !answer.contains("secret\n"),
            "{:?}: {answer:.200}",
            String::from_utf8_lossy(&request[..request.len().min(60)])
        );
    }
    assert!(ask(&url, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
}
