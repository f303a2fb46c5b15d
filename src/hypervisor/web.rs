//! The web over HTTPS and HTTP, for the sources of images.

use std::time::Duration;

use drover_model::image::Route;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use proxmox_client::Tls;
use reqwest::{Client, Proxy, StatusCode};

use crate::download::{Web, WebFault, WebFile};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long nothing may come.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Downloads from web servers. Redirects are followed, at most ten.
#[derive(Debug, Clone, Copy, Default)]
pub struct HttpWeb;

fn fault(passes: bool, text: impl Into<String>) -> WebFault {
    WebFault { passes, text: text.into() }
}

fn client(route: &Route) -> Result<Client, WebFault> {
    let broken = |error: &dyn std::fmt::Display| fault(false, error.to_string());
    let tls = proxmox_client::client_config(&Tls::System).map_err(|error| broken(&error))?;
    let builder = match route {
        Route::Environment => Client::builder(),
        Route::Direct => Client::builder().no_proxy(),
        Route::Proxy(url) => {
            Client::builder().proxy(Proxy::all(url).map_err(|error| broken(&error))?)
        }
    };
    let builder = builder
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .user_agent(concat!("drover/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| broken(&error))
}

impl Web for HttpWeb {
    fn get(&self, url: &str, route: &Route) -> BoxFuture<'static, Result<WebFile, WebFault>> {
        let (client, url) = (client(route), url.to_owned());
        Box::pin(async move {
            let answer =
                client?.get(url).send().await.map_err(|error| {
                    fault(!error.is_builder(), causes::chain(&error.without_url()))
                })?;
            let status = answer.status();
            if !status.is_success() {
                let passes = status.is_server_error()
                    || matches!(
                        status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    );
                return Err(fault(passes, format!("the server answers {status}")));
            }
            let size = answer.content_length();
            let body = answer
                .bytes_stream()
                .map(|chunk| chunk.map_err(|error| causes::chain(&error.without_url())));
            Ok(WebFile { size, body: body.boxed() })
        })
    }
}
