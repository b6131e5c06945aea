use super::*;

/// The log is one for the whole process, so its behaviour is one test.
#[test]
fn levels_decide_where_messages_go_and_lines_look_as_known() {
    let directory = std::env::temp_dir().join(format!("oxvs-vlog-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("test.log");
    set_syslog_method(SyslogMethod::Null);
    init("test-program");
    set("console:off").unwrap();
    set_file(&path).unwrap();

    tracing::info!(target: "bridge", "bridge {}: made", "br0");
    tracing::debug!(target: "bridge", "unseen");
    set("BRIDGE file,dbg").unwrap();
    tracing::debug!(target: "bridge", "seen");
    set("bridge:off").unwrap();
    tracing::error!(target: "bridge", "unseen");
    tracing::warn!(peer = 3, "of this crate");

    let rotated = directory.join("test.log.1");
    std::fs::rename(&path, &rotated).unwrap();
    reopen().unwrap();
    for n in 0..20 {
        crate::warn_limited!(target: "netdev", "flood {n}");
    }
    close();
    tracing::info!(target: "netdev", "unseen");

    let lines = |path: &Path| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines()
            .map(|line| {
                let (time, rest) = line.split_once('|').unwrap();
                assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
                rest.to_owned()
            })
            // The test's thread has a name, which follows the module.
            .map(|line| match (line.find('('), line.find(')')) {
                (Some(a), Some(b)) => format!("{}{}", &line[..a], &line[b + 1..]),
                _ => line,
            })
            .collect()
    };
    assert_eq!(
        lines(&rotated),
        [
            format!("00001|vlog|INFO|opened log file {}", path.display()),
            "00002|bridge|INFO|bridge br0: made".to_owned(),
            "00003|bridge|DBG|seen".to_owned(),
            "00004|telemetry|WARN|of this crate peer=3".to_owned(),
            "00005|vlog|INFO|closing log file".to_owned(),
        ]
    );
    assert_eq!(lines(&path).len(), 1 + 10 + 1, "limited to its burst");
    std::fs::remove_dir_all(&directory).unwrap();

    assert_eq!(
        set("a:b").unwrap_err().to_string(),
        "no destination, level, or module \"a\""
    );
    assert_eq!(
        set("PATTERN:foo:%m").unwrap_err().to_string(),
        "unknown destination \"foo\""
    );
    assert_eq!(set("FACILITY:foo").unwrap_err().to_string(), "invalid facility");
    assert!(set("any file off").is_ok());
    assert!(
        set("ofproto_dpif_xlate:syslog:err").is_ok(),
        "names of Open vSwitch are accepted"
    );
    assert!(limit_rates(&["nothing".to_owned()], false).is_err());
    set("bridge:info").unwrap();
    set("bridge:console:warn").unwrap();
    let list = list();
    assert!(
        list.lines()
            .any(|l| l == "bridge            WARN       INFO       INFO"),
        "{list}"
    );
}
