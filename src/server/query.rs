//! Queries of requests.
//!
//! A query is read into a type that names its keys. One that cannot be read is answered 400, and
//! the answer says which keys are taken.

use std::future::{Ready, ready};

use actix_web::dev::Payload;
use actix_web::error::QueryPayloadError;
use actix_web::{FromRequest, HttpRequest, web};
use serde::de::DeserializeOwned;

use super::problem::Rejection;

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
        ready(read.map_err(|fault| refusal(&fault, T::TAKEN)))
    }
}

/// What is wrong with a query, without the name that the framework gives that.
fn refusal(fault: &QueryPayloadError, taken: &str) -> Rejection {
    let text = if let QueryPayloadError::Deserialize(what) = fault {
        what.to_string()
    } else {
        fault.to_string()
    };
    // The keys are named once.
    let what = text.split_once(", expected").map_or(&*text, |(what, _)| what);
    Rejection::invalid(format!("the query cannot be read: {what}; only {taken}"))
}
