//! Turns a checked configuration into what the parts of the service take: keys, webhook secrets,
//! callers of the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use actix::Recipient;
use drover_actors::message::HerdCommand;
use drover_ci::{CiSystems, HookSecret};
use drover_hypervisor::Proxmox;
use drover_journal::Writer;
use drover_model::id::SourceId;
use drover_runtime::reply::Reply;
use drover_shell::SshShell;
use drover_shell::kept_keys::KeptKeys;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use drover_api::{Peer, Role};
use drover_config::{Checked, OpenIdGroup, OpenIdSpec, ServiceSpec, SshKeySpec};
use drover_server::view::View;
use drover_server::{Auth, GroupGrant, OpenId, PeerGrant, TokenGrant};

use super::history::History;

/// Raises the limit on open files to its maximum, because each connection to the API, to guests and
/// to clusters needs one. Gives the new limit; none for no limit.
pub fn raise_open_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if limit.current != limit.maximum && setrlimit(Resource::Nofile, raised).is_err() {
        return limit.current;
    }
    raised.current
}

/// Gives the shell the private keys, and keeps copies for agents that outlive the keys'
/// configuration.
pub fn set_keys(shell: &SshShell, former: &KeptKeys, keys: &BTreeMap<String, SshKeySpec>) {
    former.configure(keys.values().map(|spec| &spec.key));
    shell.add_keys(keys.iter().map(|(id, spec)| (id.clone(), spec.key.clone())));
}

/// The secrets that sign the webhooks of sources.
pub fn hook_secrets(checked: &Checked) -> BTreeMap<SourceId, HookSecret> {
    let each = checked.demand.iter().filter_map(|(id, source)| {
        let (auth, secret) = (source.system.hook_auth(), source.webhook.clone()?);
        Some((id.clone(), HookSecret { auth, secret }))
    });
    each.collect()
}

/// Lets the herd poll a source at once when its connector has news.
pub fn wake_on_news(systems: &CiSystems, herd: &Recipient<HerdCommand>) {
    let herd = herd.clone();
    systems.on_news(move |source| {
        let (reply, _) = Reply::channel();
        herd.do_send(HerdCommand::Wake { source, reply });
    });
}

/// Has calls, waits, guests and appends measured for people. The view meters the clients, so these must not
/// hold the view: nothing would free either of them.
pub fn measure(proxmox: &Arc<Proxmox>, journal: &Writer, view: &Arc<View>, history: &Arc<History>) {
    let calls = Arc::clone(proxmox);
    view.meter_calls(Box::new(move || calls.call_loads()));
    let calls_view = Arc::downgrade(view);
    proxmox.measure_calls(Box::new(move |route, outcome, took| {
        if let Some(view) = calls_view.upgrade() {
            view.count_call(route, outcome, took);
        }
    }));
    let waits_view = Arc::downgrade(view);
    proxmox.measure_waits(Box::new(move |task, took| {
        if let Some(view) = waits_view.upgrade() {
            view.count_limit_wait(task, took);
        }
    }));
    let guests_history = Arc::downgrade(history);
    proxmox.measure_guests(Box::new(move |cloud, guests| {
        if let Some(history) = guests_history.upgrade() {
            history.used(cloud, guests);
        }
    }));
    let appends_view = Arc::clone(view);
    journal.time_appends(move |took| appends_view.count_append(took));
    let journal_view = Arc::clone(view);
    journal.watch(move |trouble| journal_view.mark_journal(trouble.map(str::to_owned)));
}

/// The tokens and peers that can call the API, with their roles and groups, and the provider of logins.
pub fn auth(spec: &ServiceSpec) -> Auth {
    let tokens = spec.tokens.iter().map(|token| TokenGrant {
        name: token.name.clone(),
        role: token.role,
        secret: token.secret.clone(),
    });
    let operator = |peer| PeerGrant { peer, role: Role::Operator };
    let uids = spec.allowed_uids.iter().map(|uid| operator(Peer::Uid(*uid)));
    let gids = spec.allowed_gids.iter().map(|gid| operator(Peer::Gid(*gid)));
    let peers = spec.peers.iter().map(|one| PeerGrant { peer: one.peer, role: one.role });
    let of_tokens = spec.tokens.iter().map(|one| (format!("token:{}", one.name), &one.group));
    let of_peers = spec.peers.iter().map(|one| {
        let whose = match one.peer {
            Peer::Uid(uid) => format!("uid:{uid}"),
            Peer::Gid(gid) => format!("gid:{gid}"),
        };
        (whose, &one.group)
    });
    let groups = of_tokens.chain(of_peers);
    let groups = groups.filter_map(|(whose, group)| Some((whose, group.clone()?)));
    Auth::new(tokens, uids.chain(gids).chain(peers).collect())
        .grouped(groups.collect())
        .with_openid(spec.open_id.as_ref().map(openid))
}

/// The provider at which people log in, with what its groups may do.
fn openid(spec: &OpenIdSpec) -> OpenId {
    let grant = |group: &OpenIdGroup| {
        let OpenIdGroup { name, role, group } = group.clone();
        GroupGrant { name, role, group }
    };
    let grants = spec.groups.iter().map(grant).collect();
    OpenId::new(spec.name.clone(), spec.settings.clone(), grants, spec.session)
        .ending_sessions(spec.ends_session)
}
