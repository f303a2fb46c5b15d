//! Queries of requests.
//!
//! A query is read into a type that names its keys. One that cannot be read is answered 400, and
//! the answer says which key is at fault, and which are taken with which values. A route that reads no
//! query takes none (`gate.rs`).

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::error::QueryPayloadError;
use actix_web::{FromRequest, HttpRequest, web};
use serde::de::DeserializeOwned;

use super::problem::{Rejection, printable};

/// What a query is read into.
pub(super) trait Keys: DeserializeOwned {
    /// The keys that are taken, and that they are.
    const TAKEN: &'static str;
}

/// The query of a request.
#[derive(Debug)]
pub(super) struct Query<T>(pub T);

impl<T: Keys> FromRequest for Query<T> {
    type Error = Rejection;
    type Future = Ready<Result<Self, Rejection>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let read = web::Query::<T>::from_query(request.query_string());
        let read = read.map(|query| Self(query.into_inner()));
        let culprit = culprit::<T>(request.query_string());
        ready(read.map_err(|fault| refusal(&fault, culprit, T::TAKEN)))
    }
}

/// Refuses a query of a route that reads none.
pub(super) fn unasked(query: &str) -> Result<(), Rejection> {
    let Some(key) = query.split('&').find(|key| !key.is_empty()) else { return Ok(()) };
    let key = printable(key.split('=').next().unwrap_or_default());
    Err(Rejection::invalid(format!(
        "the query cannot be read: unknown field `{key}`; this route takes no query, and \
         /openapi.json lists what each takes"
    )))
}

/// The part of a query that cannot be read where it stands alone, as `key=value`.
fn culprit<T: Keys>(query: &str) -> Option<&str> {
    let mut pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.find(|pair| match web::Query::<T>::from_query(pair) {
        Err(QueryPayloadError::Deserialize(fault)) => !fault.to_string().contains("missing field"),
        Ok(_) | Err(_) => false,
    })
}

/// What is wrong with a query, without the name that the framework gives that.
fn refusal(fault: &QueryPayloadError, culprit: Option<&str>, taken: &str) -> Rejection {
    let text = if let QueryPayloadError::Deserialize(what) = fault {
        what.to_string()
    } else {
        fault.to_string()
    };
    // The keys are named once.
    let what = text.split_once(", expected").map_or(&*text, |(what, _)| what);
    let (key, value) = culprit.and_then(|pair| pair.split_once('=')).unwrap_or_default();
    let what = match what.contains("field") || key.is_empty() {
        true => what.to_owned(),
        false => format!("`{}` cannot be `{}`", printable(key), printable(value)),
    };
    Rejection::invalid(format!("the query cannot be read: {what}; only {taken}"))
}
