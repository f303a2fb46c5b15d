//! How soon a job has a warm agent when many come in at once, each with its webhook.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::{App, HttpResponse, HttpServer, web};
use futures_util::StreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::api::TOKEN;
use crate::figure::{Figure, Report, percentile};
use crate::site::{Cluster, Lanes, Service};

/// Jobs, one agent each, and the time in which they come in.
const JOBS: u32 = 200;
const BURST: Duration = Duration::from_secs(1);
/// What each should not exceed.
const AIM_MS: f64 = 200.0;
const LIMIT: Duration = Duration::from_secs(60);
/// What the webhooks are signed with.
pub const SECRET: &str = TOKEN;

/// A Gitea with nothing but jobs and runners; its runners never connect, so that all jobs wait.
#[derive(Default)]
struct Queue {
    jobs: u32,
    rows: BTreeSet<String>,
    looks: u32,
}

type Shared = web::Data<Mutex<Queue>>;

#[derive(serde::Deserialize)]
struct Page {
    page: Option<u32>,
    status: Option<String>,
}

/// Serves a queue; ends with the process.
fn serve() -> (String, Arc<Mutex<Queue>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let queue = Arc::new(Mutex::new(Queue::default()));
    let shared = web::Data::from(Arc::clone(&queue));
    std::thread::spawn(move || {
        let app = move || {
            let admin = "/api/v1/admin/actions";
            App::new()
                .app_data(shared.clone())
                .route(&format!("{admin}/runners"), web::get().to(runners))
                .route(&format!("{admin}/jobs"), web::get().to(jobs))
                .route(&format!("{admin}/runners/registration-token"), web::post().to(mint))
                .route("/api/actions/runner.v1.RunnerService/Register", web::post().to(register))
        };
        let server = HttpServer::new(app).workers(1).listen(listener).unwrap().run();
        actix_web::rt::System::new().block_on(server).unwrap();
    });
    (url, queue)
}

fn locked(queue: &Mutex<Queue>) -> parking_lot::MutexGuard<'_, Queue> {
    queue.lock()
}

async fn runners(queue: Shared, page: web::Query<Page>) -> HttpResponse {
    let queue = locked(&queue);
    let row = |(id, name): (usize, &String)| json!({ "id": id, "name": name, "status": "offline" });
    let rows: Vec<Value> = queue.rows.iter().enumerate().map(row).collect();
    let from = (page.page.unwrap_or(1).max(1) - 1) as usize * 50;
    let rows: Vec<&Value> = rows.iter().skip(from).take(50).collect();
    HttpResponse::Ok().json(json!({ "runners": rows }))
}

async fn jobs(queue: Shared, page: web::Query<Page>) -> HttpResponse {
    let mut queue = locked(&queue);
    queue.looks += 1;
    let count = if page.status.as_deref() == Some("queued") { queue.jobs } else { 0 };
    let from = (page.page.unwrap_or(1).max(1) - 1) * 50;
    let job = |id: u32| json!({ "id": id, "name": "job", "labels": ["linux"], "status": "queued" });
    let jobs: Vec<Value> = (from..count.min(from + 50)).map(job).collect();
    HttpResponse::Ok().json(json!({ "jobs": jobs }))
}

async fn mint() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "token": "of-a-registration" }))
}

async fn register(queue: Shared, body: web::Json<Value>) -> HttpResponse {
    let name = body["name"].as_str().unwrap_or_default().to_owned();
    locked(&queue).rows.insert(name);
    HttpResponse::Ok().json(json!({ "runner": { "id": "1", "uuid": "u", "token": "t" } }))
}

/// Jobs with their webhooks, evenly within a second: from each webhook until the lease that is the
/// first one without a job.
pub fn report(report: &mut Report) {
    let (url, queue) = serve();
    let cluster = Cluster::start(JOBS, false);
    let service = Service::start_for(&cluster, Lanes::Wide, &url);
    service.keep(true);
    service.until_ready(JOBS);
    let (sent, granted) = service.api().wait(burst(service.api().port(), &queue));
    // One before its job would be one that nobody wanted.
    let took = |(sent, granted): (&Instant, &Instant)| {
        granted.checked_duration_since(*sent).unwrap().as_secs_f64()
    };
    let each: Vec<f64> = sent.iter().zip(&granted).map(took).collect();
    assert_eq!(each.len(), JOBS as usize, "jobs that were sent and granted");
    for (word, share) in [("p50", 0.5), ("p99", 0.99)] {
        let took = percentile(&each, share) * 1e3;
        report.add(
            Figure::alone(format!("webhook-200.{word}"), took, "ms").against("the aim", AIM_MS),
        );
    }
    let looks = f64::from(locked(&queue).looks);
    report.add(Figure::alone("webhook-200.looks", looks / f64::from(JOBS), "a job"));
}

/// When each webhook was sent, and when each lease was granted, in order.
async fn burst(port: u16, queue: &Mutex<Queue>) -> (Vec<Instant>, Vec<Instant>) {
    let client = crate::client(None);
    let base = format!("http://127.0.0.1:{port}");
    let events = client.get(format!("{base}/v1/events")).bearer_auth(TOKEN).send().await.unwrap();
    let follow = tokio::spawn(async move {
        let (mut granted, mut known, mut kept) = (Vec::new(), BTreeSet::new(), String::new());
        let mut bytes = events.bytes_stream();
        while granted.len() < JOBS as usize {
            let chunk = tokio::time::timeout(LIMIT, bytes.next()).await.unwrap().unwrap().unwrap();
            kept.push_str(&String::from_utf8_lossy(&chunk));
            while let Some(end) = kept.find('\n') {
                let line: String = kept.drain(..=end).collect();
                let fact = line.strip_prefix("data: ").map(serde_json::from_str::<Value>);
                let lease = fact.and_then(Result::ok).map(|fact| fact["lease"].clone());
                let lease = lease.filter(|lease| lease["state"] == "granted");
                // A caller may hear of one more than once.
                if lease.is_some_and(|lease| known.insert(lease["id"].to_string())) {
                    granted.push(Instant::now());
                }
            }
        }
        granted
    });
    let started = tokio::time::Instant::now();
    let (mut sent, mut hooks) = (Vec::new(), Vec::new());
    for n in 0..JOBS {
        tokio::time::sleep_until(started + BURST * n / JOBS).await;
        locked(queue).jobs += 1;
        sent.push(Instant::now());
        let (client, url) = (client.clone(), format!("{base}/v1/hooks/git"));
        hooks.push(tokio::spawn(async move {
            let body = json!({ "action": "queued", "workflow_job": { "id": n } }).to_string();
            let request = client.post(url).header("X-Hub-Signature-256", signature(&body));
            let answer = request.header("X-Gitea-Delivery", n.to_string()).body(body).send().await;
            answer.unwrap().error_for_status().unwrap();
        }));
    }
    for hook in hooks {
        hook.await.unwrap();
    }
    (sent, follow.await.unwrap())
}

fn signature(body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body.as_bytes());
    let bytes = mac.finalize().into_bytes();
    format!("sha256={}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}
