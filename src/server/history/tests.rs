#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_history::{
    Agent, Demand, DemandKind, How, Line, MadeFor, Peaks, PriceList, Prices, Trace,
};
use drover_model::fact::What;
use drover_model::id::{CloudId, ClusterId};
use drover_model::overridden::CloudOverrides;
use drover_model::phase::CloudHealth;
use parking_lot::Mutex;
use reqwest::Method;

use super::*;
use crate::state::{READERS, ReadHistory};
use crate::testing::{Served, reported};

const HOUR: i64 = 60 * 60 * 1000;
/// The first moment of 2026-11-01 in UTC.
const START: i64 = 1_793_491_200_000;

fn agent() -> Line {
    Line::Agent(Box::new(Agent {
        id: "a1".into(),
        template: "lab/linux".into(),
        cloud: "lab".into(),
        node: None,
        cores: Some(2),
        memory_mib: Some(4096),
        made_for: MadeFor::Demand,
        made: WallTime(START),
        machine: Some(WallTime(START)),
        ready: Some(WallTime(START)),
        boot: Vec::new(),
        after: Vec::new(),
        gone: Some(WallTime(START + 2 * HOUR)),
        reason: Some("used-up".into()),
        failed_in: None,
        fault: None,
        uses: 1,
        peaks: Peaks::default(),
    }))
}

fn lease(owner: &str) -> Line {
    Line::Demand(Box::new(Demand {
        id: "l1".into(),
        kind: DemandKind::Lease,
        source: None,
        owner: Some(owner.into()),
        group: None,
        name: None,
        wants: None,
        priority: 0,
        whole: false,
        arrived: WallTime(START),
        served: Some(WallTime(START + 1000)),
        agent: Some("a1".into()),
        template: Some("lab/linux".into()),
        cores: Some(2),
        memory_mib: Some(4096),
        ended: Some(WallTime(START + HOUR)),
        how: Some(How::Done),
        granted: Some(WallTime(START)),
        used_ms: Some(3_600_000),
    }))
}

/// A door to these records, with prices.
fn door(lines: Vec<Line>) -> HistoryDoor {
    door_with(lines, 0)
}

/// The same, with so many lines behind the records that cannot be read.
fn door_with(lines: Vec<Line>, unread: u64) -> HistoryDoor {
    let read: ReadHistory = Arc::new(move |range, each| {
        let seen = HistorySeen { since: Some(WallTime(START)), unread: 0, left_out: 0 };
        for line in lines.iter().filter(|line| range.takes(line)) {
            if each(line.clone()).is_break() {
                return Ok(seen);
            }
        }
        Ok(HistorySeen { unread, ..seen })
    });
    let all = Prices { core_hour: 20_000, gib_hour: 5_000 };
    let prices = PriceList { all, ..PriceList::default() };
    HistoryDoor { read, prices: Arc::new(move || Some((prices.clone(), "EUR".to_owned()))) }
}

fn served() -> Served {
    Served::seeing(door(vec![lease("=anna, \"the\" one"), agent()]))
}

// Invariant: a report has the part of the range, as JSON and as CSV alike.

#[tokio::test]
async fn usage_is_answered_as_json_and_as_csv() {
    let served = served();
    let path = "/v1/usage?from=2026-11-01&to=2026-11-01T01:30:00Z&by=owner";
    let of_others = served.call(Some("operator"), Method::GET, path, "").await.body;
    assert_eq!(of_others["rows"][0]["name"], "(leases of others)");
    let answer = served.call(Some("admin"), Method::GET, path, "").await;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    assert_eq!(answer.body["currency"], "EUR");
    assert_eq!(answer.body["from"], "2026-11-01T00:00:00Z");
    assert_eq!(answer.body["notes"], serde_json::json!([]));
    assert_eq!(answer.body["total"]["vmHours"], 1.5);
    // 3 core-hours and 6 GiB-hours.
    assert_eq!(answer.body["total"]["price"], 0.09);
    let rows = answer.body["rows"].as_array().unwrap();
    assert_eq!((rows[0]["name"].as_str(), &rows[0]["vmHours"]), (Some("(unused)"), &0.5.into()));
    assert_eq!((&rows[1]["leases"], &rows[1]["vmHours"]), (&1.into(), &1.0.into()));
    for path in [format!("{path}&format=csv"), path.replace("/v1", "") + "&format=csv"] {
        let csv = served.call(Some("admin"), Method::GET, &path, "").await;
        assert_eq!((csv.status, csv.kind.starts_with("text/csv")), (200, true), "{path}");
        let text = csv.body.as_str().unwrap();
        assert!(text.starts_with("owner,agents,vm_hours,"), "{text}");
        assert!(text.contains("\r\n\"'=anna, \"\"the\"\" one\",0,1,2,4,1,0,"), "{text}");
    }
    served.stop().await;
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_with_what_is_taken() {
    let served = served();
    for (query, expected) in [
        ("from=yesterday", "`from` must be a time such as"),
        ("to=2026-13-01", "`to` must be a time such as"),
        ("from=2026-11-02&to=2026-11-01", "`from` must be before `to`"),
        ("from=2999-01-01", "`from` must be before `to`"),
        ("by=colour", "`by` must be one of template, source, owner, cloud"),
        ("format=xml", "`format` must be json or csv"),
        ("since=1", "unknown field `since`"),
    ] {
        let answer =
            served.call(Some("operator"), Method::GET, &format!("/v1/usage?{query}"), "").await;
        let detail = answer.body["detail"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == 400 && detail.contains(expected), "{query}: {detail}");
    }
    for path in ["/v1/usage", "/v1/trace", "/usage"] {
        assert_eq!(served.call(Some("viewer"), Method::GET, path, "").await.status, 403, "{path}");
    }
    served.stop().await;
}

// Invariant: a trace is whole, and has no names unless they were asked for.

#[tokio::test]
async fn a_trace_is_whole_and_hides_names() {
    let served = served();
    let cluster = Some(ClusterId::new("9f31c0aa52e7d410"));
    let cloud = CloudStatus {
        cloud: CloudId::new("lab"),
        cluster,
        health: CloudHealth::Well,
        version: None,
        detail: String::new(),
        agents: 3,
        cap: None,
        overrides: CloudOverrides::default(),
    };
    reported(&served.view, What::Cloud(Box::new(cloud)));
    let text = async |query: &str| {
        let answer =
            served.call(Some("operator"), Method::GET, &format!("/v1/trace{query}"), "").await;
        assert_eq!((answer.status, answer.kind.as_str()), (200, "text/plain; charset=utf-8"));
        answer.body.as_str().unwrap().to_owned()
    };
    let hidden = text("").await;
    assert!(!hidden.contains("anna"), "{hidden}");
    let trace = Trace::read(hidden.as_bytes(), Limits::default()).unwrap();
    assert_eq!((trace.agents.len(), trace.demands.len(), trace.cut), (1, 1, None));
    assert_eq!(trace.header.from, WallTime(START));
    assert!(!trace.header.names && trace.header.left_out[0].contains("hashed"));
    let size = NodeSize { cloud: "lab".into(), node: "pve1".into(), cores: 8, memory_mib: 6144 };
    assert_eq!(trace.header.nodes, [size]);
    let shown = text("?names=true&from=2026-11-01&to=2026-11-02").await;
    let trace = Trace::read(shown.as_bytes(), Limits::default()).unwrap();
    assert_eq!(trace.demands[0].owner.as_deref(), Some("=anna, \"the\" one"));
    assert_eq!(trace.header.to, WallTime(START + 24 * HOUR));
    assert!(trace.header.names && trace.header.left_out.is_empty());
    let before = text("?from=2026-10-01&to=2026-10-02").await;
    let trace = Trace::read(before.as_bytes(), Limits::default()).unwrap();
    assert_eq!(trace.agents.len() + trace.demands.len(), 0);
    assert!(trace.header.left_out[0].contains("the history begins at 2026-11-01"));
    served.stop().await;
}

#[tokio::test]
async fn a_trace_begins_with_the_history_however_early_it_is_asked_for() {
    let served = served();
    for from in ["2020-01-01", "1970-01-01", "0001-01-01"] {
        let path = format!("/v1/trace?from={from}&to=2026-11-02");
        let answer = served.call(Some("operator"), Method::GET, &path, "").await;
        let text = answer.body.as_str().unwrap();
        let trace = Trace::read(text.as_bytes(), Limits::default()).unwrap();
        assert_eq!((trace.header.from, trace.agents.len()), (WallTime(START), 1), "{from}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_trace_without_lines_that_cannot_be_read_says_so() {
    let served = Served::seeing(door_with(vec![agent()], 3));
    let answer = served.call(Some("operator"), Method::GET, "/v1/trace", "").await;
    let text = answer.body.as_str().unwrap();
    let trace = Trace::read(text.as_bytes(), Limits::default()).unwrap();
    let cut = "lines of the history that cannot be read: 3";
    assert_eq!((trace.agents.len(), trace.cut.as_deref()), (1, Some(cut)));
    served.stop().await;
}

// Invariant: a caller that takes nothing holds its place for a while, not for ever.

#[tokio::test]
async fn a_trace_that_nobody_takes_is_given_up() {
    use std::io::Write as _;

    let (to, mut taken) = mpsc::channel(1);
    let written = tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces::new(to, Duration::ZERO);
        pieces.write_all(b"one").and_then(|()| pieces.flush()).unwrap();
        pieces.write_all(b"two").and_then(|()| pieces.flush())
    });
    let error = written.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert_eq!((taken.recv().await.as_deref(), taken.recv().await), (Some(&b"one"[..]), None));
}

#[tokio::test]
async fn a_trace_of_many_pieces_is_read_as_it_is_sent() {
    let many: Vec<Line> = (0..5000).map(|n| lease(&format!("owner {n}"))).collect();
    let served = Served::seeing(door(many));
    let answer = served.call(Some("operator"), Method::GET, "/v1/trace", "").await;
    let text = answer.body.as_str().unwrap();
    assert!(text.len() > 20 * PIECE_BYTES);
    assert_eq!(Trace::read(text.as_bytes(), Limits::default()).unwrap().demands.len(), 5000);
    served.stop().await;
}

// Invariant: a history that cannot be read is said to be so, and a trace of it is not taken for a whole one.

#[tokio::test]
async fn a_history_that_cannot_be_read_gives_no_report_and_no_whole_trace() {
    let read: ReadHistory = Arc::new(|_, _| Err(io::Error::other("the disk is gone")));
    let served = Served::seeing(HistoryDoor { read, ..HistoryDoor::default() });
    let answer = served.call(Some("operator"), Method::GET, "/v1/usage", "").await;
    assert_eq!(answer.status, 503);
    let detail = answer.body["detail"].as_str().unwrap();
    assert!(detail.contains("the history cannot be read: the disk is gone"), "{detail}");
    let trace = served.call(Some("operator"), Method::GET, "/v1/trace", "").await;
    assert!(
        Trace::read(trace.body.as_str().unwrap_or_default().as_bytes(), Limits::default()).is_err()
    );
    served.stop().await;
}

// Invariant: few read the history at once, since each reading may be of a gigabyte.

#[tokio::test]
async fn more_readers_than_there_are_places_for_are_refused() {
    let (entered, begins) = std::sync::mpsc::channel();
    let (go_on, goes_on) = std::sync::mpsc::channel::<()>();
    let (entered, goes_on) = (Mutex::new(entered), Mutex::new(goes_on));
    let read: ReadHistory = Arc::new(move |_, _| {
        entered.lock().send(()).unwrap();
        let _ = goes_on.lock().recv();
        Ok(HistorySeen::default())
    });
    let served = Served::seeing(HistoryDoor { read, ..HistoryDoor::default() });
    let ask = || async {
        let request = served.http.get(format!("{}/v1/usage", served.base));
        request.bearer_auth("operator-token").send().await.unwrap().status().as_u16()
    };
    let waiting = futures_util::future::join_all((0..READERS).map(|_| ask()));
    let (statuses, refused) = tokio::join!(waiting, async {
        let all =
            tokio::task::spawn_blocking(move || (0..READERS).for_each(|_| begins.recv().unwrap()));
        all.await.unwrap();
        let status = ask().await;
        drop(go_on);
        status
    });
    assert_eq!((refused, statuses), (503, vec![200; READERS]));
    served.stop().await;
}

// Invariant: the page shows the same report, and its links keep its range.

#[tokio::test]
async fn the_page_shows_the_report_of_its_address() {
    let served = served();
    let path = "/usage?from=2026-11-01&to=2026-11-01T01:30:00Z&by=template";
    let answer = served.call(Some("operator"), Method::GET, path, "").await;
    let html = answer.body.as_str().unwrap();
    assert_eq!(answer.status, 200, "{html}");
    for part in [
        "<a href=\"/templates/lab/linux\">lab/linux</a>",
        "Price EUR",
        "<td class=\"number\">0.09</td>",
        "by=template&#38;format=csv",
        "<option value=\"template\" selected>",
    ] {
        assert!(html.contains(part), "no {part} in {html}");
    }
    served.stop().await;
}
