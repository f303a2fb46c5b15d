//! `drover leases`, `drover lease renew` and `drover release`: see leases, renew and end them.

use std::time::Duration;

use causes::chain;
use reqwest::Method;
use serde_json::json;

use super::client::{CALL_LIMIT, Client, path};
use super::error::{CliError, usage};
use super::options::LeasesOptions;
use super::term::{Term, print, shown};
use super::{kept, lists, report, sentences};
use drover_api::{LeaseOut, LeasesOut, RenewIn, WhoAmIOut};
use drover_model::phase::LeasePhase;

/// Lists leases, or ends those that are listed.
pub(super) async fn leases(
    client: &Client,
    options: &LeasesOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    if options.end {
        is_chosen(options)?;
    }
    let principal = match options.mine {
        true => {
            let caller: WhoAmIOut = client.get("/v1/whoami", CALL_LIMIT).await?;
            Some(caller.principal)
        }
        false => options.principal.as_deref().map(principal),
    };
    let mut found = all(client, options.state, principal.as_deref()).await?;
    if options.state.is_none() {
        found.retain(|lease| lease.state != LeasePhase::Ended);
    }
    if !options.end {
        let whole = |leases| LeasesOut { leases, next: None };
        lists::show(term, json, &options.list, found, whole, |_, _| ())?;
        return Ok(0);
    }
    let ids: Vec<String> = found
        .into_iter()
        .filter(|lease| lease.state != LeasePhase::Ended)
        .map(|lease| lease.id)
        .collect();
    end(client, &ids, json, term).await
}

/// Whether options say which leases end: by what the service chooses, and not by what a list shows.
fn is_chosen(options: &LeasesOptions) -> Result<(), CliError> {
    if !options.list.filters.is_empty() {
        return Err(usage(
            "`--filter` chooses what a list shows, and `--end` ends leases by `--state`, `--principal` and \
             `--mine` alone; `drover lease release LEASE ...` ends those that you name",
        ));
    }
    if options.state.is_none() && options.principal.is_none() && !options.mine {
        return Err(usage(
            "`--end` ends every lease that it finds, so say which: `--mine` for your own, `--principal \
             token:NAME` for those of one token, or `--state waiting`; `drover leases` shows whose each \
             is",
        ));
    }
    Ok(())
}

/// A principal as the service spells it: a bare name is that of a token.
fn principal(word: &str) -> String {
    if word.contains(':') { word.to_owned() } else { format!("token:{word}") }
}

/// All leases, or those of a state and a principal.
pub(super) async fn all(
    client: &Client,
    state: Option<LeasePhase>,
    principal: Option<&str>,
) -> Result<Vec<LeaseOut>, CliError> {
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let given = [
            ("state", state.map(LeasePhase::name)),
            ("principal", principal),
            ("after", after.as_deref()),
        ];
        let query = given.into_iter().filter_map(|(key, value)| {
            let value =
                percent_encoding::utf8_percent_encode(value?, percent_encoding::NON_ALPHANUMERIC);
            Some(format!("{key}={value}"))
        });
        let query = query.collect::<Vec<_>>().join("&");
        let page: LeasesOut = client.get(&format!("/v1/leases?{query}"), CALL_LIMIT).await?;
        found.extend(page.leases);
        // One that does not go on would be asked for ever.
        match page.next.filter(|next| after.as_ref().is_none_or(|before| next > before)) {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}

/// Refuses an id without a character, as of a variable of a script that holds nothing.
fn is_named(id: &str) -> Result<(), CliError> {
    if id.trim().is_empty() {
        return Err(usage("give the id of a lease; `drover leases` lists them"));
    }
    Ok(())
}

/// Lets a lease last longer.
pub(super) async fn renew(
    client: &Client,
    lease: &str,
    ttl: Duration,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    is_named(lease)?;
    let command = RenewIn { ttl_seconds: ttl.as_secs() };
    let out: LeaseOut = client.post(&path("leases", lease, "/renew"), &command, CALL_LIMIT).await?;
    kept::renewed(&kept::key_dir(), &out);
    print(term, json, &out, |out| {
        let until =
            out.expires_at.as_deref().unwrap_or("its grant, and then as long as was asked for");
        format!("lease {} lasts until {}\n", sentences::clean(&out.id), sentences::clean(until))
    })
}

/// Ends leases, each whatever became of the others; says which could not be ended.
pub(super) async fn end(
    client: &Client,
    ids: &[String],
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    ids.iter().try_for_each(|id| is_named(id))?;
    let (mut ended, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    for id in ids {
        match client.report(Method::DELETE, &path("leases", id, "")).await {
            Ok(()) => {
                kept::forget(&kept::key_dir(), id);
                if !json {
                    writeln!(term.out, "lease {} is over", sentences::clean(id))?;
                }
                ended.push(id);
            }
            Err(fault) if ids.len() == 1 => return Err(fault.into()),
            Err(fault) => {
                let why = chain(&fault);
                if !json {
                    let text = format!("lease {id} cannot be ended: {why}");
                    writeln!(term.err, "{}", shown(&text))?;
                }
                failed.push(json!({ "lease": id, "text": why }));
                first.get_or_insert(CliError::Call(fault));
            }
        }
    }
    match ended.as_slice() {
        [one] if json && ids.len() == 1 => term.line(&json!({ "released": one }))?,
        _ if json => term.line(&json!({ "released": ended, "failed": failed }))?,
        [] if failed.is_empty() => writeln!(term.out, "no lease to end")?,
        _ => {}
    }
    let Some(first) = first else { return Ok(0) };
    if json {
        let text = format!("{} of {} leases cannot be ended", failed.len(), ids.len());
        writeln!(term.err, "{}", report::line(first.exit_code(), &text))?;
    }
    Ok(first.exit_code())
}
