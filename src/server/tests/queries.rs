//! Queries and codings of requests, over real sockets: what no route reads is refused, with its name.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use drover_api::Role;
use reqwest::Method;

use crate::gate::Access;
use crate::routes::places;
use crate::testing::Served;

/// A method as the client of the tests names it.
fn named(method: &actix_web::http::Method) -> Method {
    method.as_str().parse().unwrap()
}

// Invariant: a key that a route does not read is never passed over in silence.

#[tokio::test]
async fn every_route_names_a_key_of_the_query_that_it_does_not_read() {
    let served = Served::default();
    for place in places() {
        let path = place.path.replace("{id}", "x").replace("{node}", "x").replace("{source}", "x");
        for (method, access) in &place.methods {
            let asked = format!("{path}?nope=1&after=abc");
            let answer = served.admin(named(method), &asked, "").await;
            let detail = answer.body["detail"].as_str().unwrap_or_default().to_owned();
            match access {
                // Probes and CI systems may be set up with a query.
                Access::Open => assert!(!detail.contains("`nope`"), "{method} {path}: {detail}"),
                Access::Least(_) => {
                    assert_eq!(answer.status, 400, "{method} {path}: {detail}");
                    assert!(detail.contains("unknown field `nope`; "), "{method} {path}: {detail}");
                }
            }
        }
    }
    let events = served.admin(Method::GET, "/v1/events?after=abc", "").await;
    assert_eq!(events.status, 400, "{}", events.body);
    served.stop().await;
}

#[tokio::test]
async fn a_query_that_is_empty_is_none() {
    let served = Served::default();
    for path in ["/v1/agents?", "/v1/agents?&", "/v1/leases?"] {
        assert_eq!(served.admin(Method::GET, path, "").await.status, 200, "{path}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_body_that_is_coded_is_refused_with_the_coding() {
    let served = Served::default();
    for place in places() {
        let posts = |(method, access): &&(actix_web::http::Method, Access)| {
            method.as_str() == "POST"
                && matches!(access, Access::Least(Role::Viewer | Role::Operator | Role::Admin))
        };
        let Some((method, _)) = place.methods.iter().find(posts) else { continue };
        for (coding, refused) in [("gzip", true), ("br, identity", true), ("identity", false)] {
            let url = format!("{}{}", served.base, place.path.replace(['{', '}'], ""));
            let request = served.http.request(named(method), url).bearer_auth("admin-token");
            let answer =
                request.header("content-encoding", coding).body("{}").send().await.unwrap();
            let status = answer.status().as_u16();
            assert_eq!(status == 415, refused, "{} {coding}: {status}", place.path);
            if refused {
                assert!(answer.text().await.unwrap().contains(&format!("is `{coding}`")));
            }
        }
    }
    served.stop().await;
}
