//! Keys of `service.history` and `service.prices`.

use super::{Key, Raw, Table, mappings, text, value, whole};

/// How long the history stays by default, in days, and how much of it, in MiB.
pub(in super::super) const HISTORY_KEEP: (u64, u64) = (90, 1024);

table! {
    /// Keys of `service.history`.
    HISTORY => RawHistory {
        "keepDays" => keep_days: u64, whole(0..=3650).or(HISTORY_KEEP.0),
            "days after which drover removes what it knows of the past; 0: drover keeps nothing";
        "keepMB" => keep_mb: u64, whole(1..=1_000_000).or(HISTORY_KEEP.1),
            "maximum size in MiB of all that is kept; drover removes the oldest";
    }
}

table! {
    /// Keys of `service.prices`.
    PRICES => RawPrices {
        "coreHour" => core_hour: String, text().required().check(value::price).eg(r#""0.012""#),
            "price of one processor core for one hour";
        "gibHour" => gib_hour: String, text().required().check(value::price).eg(r#""0.004""#),
            "price of one GiB of memory for one hour";
        "currency" => currency: Option<String>, text().check(value::currency).eg("EUR"),
            "name of the currency, as people read it; unset: none";
        "overrides", mappings(&PRICE), "prices of single clouds and templates";
    }
}

table! {
    /// Keys of each item of `service.prices.overrides`.
    PRICE => RawPrice {
        "of" => of: String, text().required().eg("lab/linux"),
            "the cloud, or the template as CLOUD/TEMPLATE; a template outweighs its cloud";
        "coreHour" => core_hour: Option<String>, text().check(value::price).eg(r#""0.020""#),
            "price of one processor core for one hour; unset: that of the cloud, else of all";
        "gibHour" => gib_hour: Option<String>, text().check(value::price).eg(r#""0.006""#),
            "price of one GiB of memory for one hour; unset: that of the cloud, else of all";
    }
}
