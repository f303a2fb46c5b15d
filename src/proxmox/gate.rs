//! A gate between a new connection and the first request on it: while a connection is made, seconds may pass
//! in which the request must not be sent any more.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tower_layer::Layer;
use tower_service::Service;

/// What a gate asks: the answer comes when requests may go.
pub type Ask = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Puts a gate behind each new connection of an HTTP client (`reqwest::ClientBuilder::connector_layer`).
#[derive(Clone)]
pub struct GateLayer(Ask);

impl GateLayer {
    /// Gives a connection out when this answers.
    pub fn new(ask: Ask) -> Self {
        Self(ask)
    }
}

impl fmt::Debug for GateLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateLayer")
    }
}

impl<S> Layer<S> for GateLayer {
    type Service = GatedConnector<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GatedConnector { inner, ask: Arc::clone(&self.0) }
    }
}

/// Makes connections, and gives them out when requests may go.
#[derive(Clone)]
pub struct GatedConnector<S> {
    inner: S,
    ask: Ask,
}

impl<S, R> Service<R> for GatedConnector<S>
where
    S: Service<R>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (connecting, ask) = (self.inner.call(request), Arc::clone(&self.ask));
        async move {
            let connection = connecting.await?;
            ask().await;
            Ok(connection)
        }
        .boxed()
    }
}
