//! Plain aligned text for people.

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use drover_model::finding::Does;
use drover_model::phase::DeclaredPhase;
use drover_model::size::Size;

use drover_api::{
    AddressPoolOut, AgentOut, AgentsOut, BreakerOut, CloudOut, ConfigOut, DeclaredMachineOut,
    DriftOut, ImageBuildOut, LeaseOut, ProvisionOut, ResyncOut, ResyncPlanOut, SourceOut,
    StatusOut, TemplateOut, UnreadOut,
};

/// Text from elsewhere without anything that could move the cursor, on one line.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Rows under headings, columns two spaces apart.
pub(super) fn table<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(headings);
    table.add_rows(rows.into_iter().map(|row| row.map(|cell| clean(&cell))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// A number of things, such as `1 agent` or `no agents`.
pub(super) fn count(number: usize, thing: &str) -> String {
    match number {
        0 => format!("no {thing}s"),
        1 => format!("1 {thing}"),
        more => format!("{more} {thing}s"),
    }
}

pub(super) fn dash(text: Option<impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| text.to_string())
}

/// Everything at a glance.
pub(super) fn status(status: &StatusOut) -> String {
    let ready = match (status.ready, &status.journal) {
        (true, _) => "ready",
        (false, Some(_)) => "not ready",
        (false, None) => "starting",
    };
    let mut text = format!("drover {}, {ready}\n{}", status.version, config(&status.config));
    if let Some(trouble) = &status.journal {
        let trouble = clean(trouble);
        text.push_str(&format!("JOURNAL cannot be written, nothing new is started: {trouble}\n"));
    }
    for alarm in &status.alarms {
        text.push_str(&format!(
            "ALARM since {}: agent {}: {}\n  run: {}\n",
            alarm.since,
            alarm.agent,
            clean(&alarm.text),
            clean(&alarm.command)
        ));
    }
    for sign in &status.other_drover {
        text.push_str(&format!("ALARM another drover may own agents: {}\n", clean(sign)));
    }
    for restart in status.restarts.iter().filter(|restart| restart.gave_up) {
        text.push_str(&format!("GIVEN UP at {}: {}\n", restart.at, clean(&restart.actor)));
    }
    text.push_str(&format!("\nCLOUDS\n{}", clouds(&status.clouds)));
    text.push_str(&format!("\nTEMPLATES\n{}", templates(&status.templates)));
    let places: Vec<BreakerOut> =
        status.breakers.iter().filter(|one| one.id != one.template).cloned().collect();
    if !places.is_empty() {
        text.push_str(&format!("\nBREAKERS\n{}", breakers(&places)));
    }
    if !status.address_pools.is_empty() {
        text.push_str(&format!("\nADDRESS POOLS\n{}", address_pools(&status.address_pools)));
    }
    if !status.sources.is_empty() {
        text.push_str(&format!("\nDEMAND\n{}", sources(&status.sources)));
    }
    for build in &status.builds {
        text.push_str(&build_line(build));
    }
    for lost in &status.lost_jobs {
        let job = dash(lost.job.as_ref());
        text.push_str(&format!(
            "LOST at {}: job {} of {} with agent {}; run it again there if it is wanted\n",
            lost.at,
            clean(&job),
            clean(&lost.source),
            lost.agent
        ));
    }
    if !status.machines.is_empty() {
        text.push_str(&format!("\nMACHINES\n{}", machines(&status.machines)));
    }
    text.push_str(&format!("\nAGENTS\n{}", live(&status.agents)));
    text.push_str(&format!("\nLEASES\n{}", leases(&status.leases)));
    if !status.reconciled.is_empty() {
        text.push_str("\nRECONCILED\n");
        for one in &status.reconciled {
            let result = match &one.unread {
                Some(why) => format!("not read: {}", clean(why)),
                None => count(one.findings.len(), "finding"),
            };
            text.push_str(&format!("{} at {}: {result}\n", one.cluster, one.at));
            for finding in &one.findings {
                text.push_str(&format!("  {}\n", clean(finding)));
            }
        }
    }
    text
}

fn config(config: &ConfigOut) -> String {
    let mut text = match (config.generation, &config.applied_at) {
        (Some(generation), Some(at)) => {
            format!("configuration: generation {generation}, in force since {at}\n")
        }
        (Some(_) | None, _) => "configuration: none in force\n".to_owned(),
    };
    if let Some(seconds) = config.orphan_cleanup_period_seconds {
        text.push_str(&format!("{}\n", every_cloud(seconds)));
    }
    if let (Some(at), Some(refusal)) = (&config.refused_at, &config.refusal) {
        text.push_str(&format!("REFUSED at {at}, the old configuration stays:\n"));
        for line in refusal.lines() {
            text.push_str(&format!("  {}\n", clean(line)));
        }
    }
    text
}

/// Where a declared machine is in its life.
pub(super) fn machine_state(out: &DeclaredMachineOut) -> String {
    match (out.state, out.drift.is_empty()) {
        (DeclaredPhase::Kept, false) => "kept, with drift".to_owned(),
        (state, _) => state.name().to_owned(),
    }
}

/// A difference between a machine and its declaration.
pub(super) fn differs(one: &DriftOut) -> String {
    format!("{} is {}, declared {}", one.what, one.found, one.declared)
}

/// Declared machines, with what differs where nothing else is to say.
pub(super) fn machines(machines: &[DeclaredMachineOut]) -> String {
    if machines.is_empty() {
        return "none\n".to_owned();
    }
    let row = |one: &DeclaredMachineOut| {
        let drift: Vec<String> = one.drift.iter().map(differs).collect();
        let said = if one.detail.is_empty() { drift.join("; ") } else { one.detail.clone() };
        [
            one.name.clone(),
            machine_state(one),
            one.power.to_string(),
            dash(one.vmid),
            dash(one.node.as_ref()),
            dash(one.addresses.first()),
            said,
        ]
    };
    table(
        ["MACHINE", "STATE", "POWER", "VMID", "NODE", "ADDRESS", "DETAIL"],
        machines.iter().map(row).collect(),
    )
}

/// That the service says how often its clouds are reconciled.
pub(super) fn every_cloud(seconds: u64) -> String {
    format!("every cloud is reconciled each {seconds} s: service.orphanCleanupPeriodSeconds")
}

fn clouds(clouds: &[CloudOut]) -> String {
    if clouds.is_empty() {
        return "none\n".to_owned();
    }
    let row = |cloud: &CloudOut| {
        [
            cloud.id.clone(),
            cloud.health.to_string(),
            dash(cloud.version.as_ref()),
            format!("{}/{}", cloud.agents, dash(cloud.cap)),
            dash(cloud.cluster.as_ref()),
            cloud.detail.clone(),
        ]
    };
    table(
        ["NAME", "HEALTH", "VERSION", "AGENTS", "CLUSTER", "DETAIL"],
        clouds.iter().map(row).collect(),
    )
}

/// Templates with counts, cap and breaker.
pub(super) fn templates(templates: &[TemplateOut]) -> String {
    if templates.is_empty() {
        return "none\n".to_owned();
    }
    let row = |template: &TemplateOut| {
        let states: Vec<_> = template
            .states
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        let breaker = match (&template.retry_at, &template.cause) {
            (Some(at), Some(cause)) => format!("{} until {at}: {cause}", template.breaker),
            (Some(_) | None, _) => template.breaker.to_string(),
        };
        let breaker = match &template.lack {
            Some(lack) => format!("{breaker}; {lack}"),
            None => breaker,
        };
        let count: u32 = template.states.values().sum();
        let kept = match (template.minimum, template.idle_minimum) {
            (0, 0) => "-".to_owned(),
            (all, 0) => all.to_string(),
            (0, idle) => format!("{idle} idle"),
            (all, idle) => format!("{all}, {idle} idle"),
        };
        [
            template.id.clone(),
            format!("{count}/{}", dash(template.cap)),
            kept,
            if states.is_empty() { "-".to_owned() } else { states.join(", ") },
            if template.labels.is_empty() { "-".to_owned() } else { template.labels.join(",") },
            breaker,
            match &template.paused {
                Some(why) => format!("pauses: {why}"),
                None => dash(template.source.as_ref()),
            },
        ]
    };
    let all = table(
        ["NAME", "AGENTS", "KEPT", "STATES", "LABELS", "BREAKER", "CLONED FROM"],
        templates.iter().map(row).collect(),
    );
    templates.iter().map(asides).fold(all, |text, more| text + &more)
}

/// What else there is to say of a template, a line each.
fn asides(template: &TemplateOut) -> String {
    let mut text = String::new();
    let seconds = |ms: Option<u64>| {
        ms.map_or_else(|| "-".to_owned(), |ms| format!("{}.{} s", ms / 1000, ms % 1000 / 100))
    };
    if let Some(resets) = &template.resets {
        let (reset, fresh) = (seconds(resets.reset_ms), seconds(resets.clone_ms));
        let detail = if resets.detail.is_empty() { "" } else { "; " };
        text += &format!(
            "{}: {} resets of {reset} each, a new agent takes {fresh}{detail}{}\n",
            template.id, resets.count, resets.detail
        );
    }
    for one in template.canary.iter().flat_map(|canary| &canary.given_up) {
        text += &format!(
            "{}: ALARM: version {} is not used, {} of its agents failed: {}\n  run, once \
             that is repaired: drover breakers reset {}\n",
            template.id,
            one.version,
            one.failures,
            clean(&one.cause),
            template.id
        );
    }
    if let Some(canary) = &template.canary
        && let (Some(version), Some(agent)) = (&canary.trying, &canary.agent)
    {
        text += &format!("{}: agent {agent} tries version {version}\n", template.id);
    }
    if let Some(seconds) = template.hold_next_seconds {
        text += &format!("{}: the next failure is held for {seconds} s\n", template.id);
    }
    text
}

/// Breakers that do not flow.
pub(super) fn breakers(breakers: &[BreakerOut]) -> String {
    if breakers.is_empty() {
        return "all flow\n".to_owned();
    }
    let row = |one: &BreakerOut| {
        [
            one.id.clone(),
            one.state.to_string(),
            dash(one.retry_at.as_ref()),
            dash(one.cause.as_ref()),
        ]
    };
    table(["NAME", "STATE", "TRIED AGAIN", "CAUSE"], breakers.iter().map(row).collect())
}

/// Pools of addresses with what they have.
pub(super) fn address_pools(pools: &[AddressPoolOut]) -> String {
    if pools.is_empty() {
        return "none\n".to_owned();
    }
    let row = |pool: &AddressPoolOut| {
        [
            pool.id.clone(),
            pool.size.to_string(),
            pool.used.to_string(),
            pool.resting.to_string(),
            pool.free.to_string(),
            dash(pool.next_free_at.as_ref()),
            pool.ranges.join(", "),
        ]
    };
    table(
        ["POOL", "SIZE", "USED", "RESTING", "FREE", "NEXT FREE AT", "ADDRESSES"],
        pools.iter().map(row).collect(),
    )
}

/// Sources of demand, and why one cannot be polled.
fn sources(sources: &[SourceOut]) -> String {
    let row = |source: &SourceOut| {
        [
            source.id.clone(),
            source.kind.clone(),
            source.waiting.to_string(),
            dash(source.oldest.as_ref()),
            source.running.to_string(),
            source.runners.to_string(),
            source.unoffered.to_string(),
            source.ignored.to_string(),
            dash(source.silent_since.as_ref()),
        ]
    };
    let mut text = table(
        [
            "SOURCE",
            "KIND",
            "WAITING",
            "SINCE",
            "RUNNING",
            "RUNNERS",
            "UNSERVED",
            "IGNORED",
            "NO LOOK SINCE",
        ],
        sources.iter().map(row).collect(),
    );
    for source in sources {
        if !source.configured {
            text.push_str(&format!(
                "{}: is not configured any more; `drover why {0}` shows what still runs\n",
                clean(&source.id)
            ));
        }
        for lacks in &source.lacks {
            text.push_str(&format!("{}: unserved: {}\n", clean(&source.id), clean(lacks)));
        }
        if let (Some(since), Some(refusal)) = (&source.refused_since, &source.refusal) {
            text.push_str(&format!(
                "{}: may not register runners since {}: {}\n",
                clean(&source.id),
                clean(since),
                clean(refusal),
            ));
        } else if source.unserved > 0 {
            text.push_str(&format!(
                "{}: {} could not be started in a row; `drover why` and its log say why\n",
                clean(&source.id),
                count(source.unserved as usize, "runner"),
            ));
        }
        if let Some(detail) = &source.detail {
            text.push_str(&format!("{}: {}\n", clean(&source.id), clean(detail)));
        }
    }
    text
}

/// Agents, and those that went when wanted.
pub(super) fn agents(agents: &AgentsOut, gone: bool) -> String {
    let mut text = live(&agents.agents);
    if gone {
        text.push_str("\nGONE\n");
        if agents.gone.is_empty() {
            text.push_str("none\n");
            return text;
        }
        let rows = agents.gone.iter().map(|gone| {
            let life: u64 = gone.phases.iter().map(|phase| phase.ms).sum();
            [
                gone.id.clone(),
                gone.template.clone(),
                gone.gone_at.clone(),
                format!("{:.1} s", life as f64 / 1000.0),
                gone.detail.clone(),
            ]
        });
        text.push_str(&table(["ID", "TEMPLATE", "GONE AT", "LIVED", "WHY"], rows.collect()));
    }
    text
}

fn live(agents: &[AgentOut]) -> String {
    if agents.is_empty() {
        return "none\n".to_owned();
    }
    let row = |agent: &AgentOut| {
        let place = agent.ssh.as_ref().map(|ssh| format!("{}@{}:{}", ssh.user, ssh.host, ssh.port));
        [
            agent.id.clone(),
            agent.template.clone(),
            agent.state.to_string(),
            agent.since.clone(),
            dash(agent.vmid),
            dash(agent.node.as_ref()),
            dash(place),
            dash((!agent.leases.is_empty()).then(|| agent.leases.join(","))),
            detail(agent),
        ]
    };
    table(
        ["ID", "TEMPLATE", "STATE", "SINCE", "VMID", "NODE", "LOGIN", "LEASES", "DETAIL"],
        agents.iter().map(row).collect(),
    )
}

/// What an agent waits for, after what is other than its template says.
fn detail(agent: &AgentOut) -> String {
    let own = agent.overrides.spell();
    let trial = if agent.on_trial { "on trial" } else { "" };
    let size = Size::from(agent.size).to_string();
    let parts = [trial, size.as_str(), own.as_str(), agent.detail.as_str()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

fn leases(leases: &[LeaseOut]) -> String {
    if leases.is_empty() {
        return "none\n".to_owned();
    }
    let row = |lease: &LeaseOut| {
        [
            lease.id.clone(),
            lease.state.to_string(),
            dash(lease.agent.as_ref()),
            lease.owner.clone(),
            dash(lease.expires_at.as_ref()),
            lease.detail.clone(),
        ]
    };
    table(["ID", "STATE", "AGENT", "OWNER", "EXPIRES", "DETAIL"], leases.iter().map(row).collect())
}

/// Leases with what they want and whose they are.
pub(super) fn all_leases(leases: &[LeaseOut]) -> String {
    if leases.is_empty() {
        return "none\n".to_owned();
    }
    let row = |lease: &LeaseOut| {
        [
            lease.id.clone(),
            lease.state.to_string(),
            lease.wants.clone(),
            dash(lease.agent.as_ref()),
            lease.principal.clone(),
            lease.owner.clone(),
            dash(lease.asked_at.as_ref()),
            dash(lease.expires_at.as_ref()),
            lease.detail.clone(),
        ]
    };
    let names =
        ["ID", "STATE", "WANTS", "AGENT", "PRINCIPAL", "OWNER", "ASKED", "EXPIRES", "DETAIL"];
    table(names, leases.iter().map(row).collect())
}

/// What was started, and why not more.
pub(super) fn provisioned(out: &ProvisionOut) -> String {
    let started = count(out.agents.len(), "agent");
    let mut text = format!("{started} of {} started\n", clean(&out.template));
    for agent in &out.agents {
        text.push_str(&format!("  {}\n", clean(agent)));
    }
    if let Some(why) = &out.short {
        let missing = (out.wanted as usize).saturating_sub(out.agents.len());
        text.push_str(&format!("{missing} not started: {}\n", clean(why)));
    }
    if let Some(why) = out.paused.as_ref().filter(|_| !out.agents.is_empty()) {
        text.push_str(&format!(
            "they go at once where it still holds that the template pauses: {}\n",
            clean(why)
        ));
    }
    text
}

/// How far the build of an image is.
pub(super) fn build_line(build: &ImageBuildOut) -> String {
    let (image, node) = (clean(&build.image), clean(&build.node));
    let (id, detail) = (clean(&build.build), clean(&build.detail));
    let line = match (&build.failed_at, &build.failure) {
        (Some(at), Some(_)) => {
            format!("image {image} on {node}: build {id} failed at {at}: {}", described(build))
        }
        (_, _) => format!("image {image} on {node}: build {id}: {} {detail}", build.state),
    };
    format!("{}\n", line.trim_end())
}

/// What a build does or waits for; where it failed, why, and what drover does then.
pub(super) fn described(build: &ImageBuildOut) -> String {
    let detail = clean(&build.detail);
    let Some(failure) = build.failure.as_deref().map(clean) else { return detail };
    let text = match (build.state.is_over(), detail.is_empty()) {
        (true, _) => detail,
        (false, true) => format!("{failure}; drover removes its guest"),
        (false, false) => format!("{failure}; drover removes its guest ({detail})"),
    };
    match (&build.next_build, build.again, &build.next_try) {
        (Some(next), ..) => format!("{text}; build {} goes on in its place", clean(next)),
        (None, true, _) => format!("{text}; drover builds it again"),
        (None, false, Some(at)) => {
            format!("{text}; the next try is at {at}, where a template waits for the image then")
        }
        (None, false, None) => text,
    }
}

/// Clusters that could not be read, each with why.
pub(super) fn unread(clusters: &[UnreadOut]) -> String {
    let line = |one: &UnreadOut| {
        let (cluster, why) = (clean(&one.cluster), clean(&one.why));
        match &one.cloud {
            Some(cloud) => {
                format!("cloud {} (cluster {cluster}) was not read: {why}\n", clean(cloud))
            }
            None => format!("cluster {cluster} was not read: {why}\n"),
        }
    };
    clusters.iter().map(line).collect()
}

/// What a reconciliation found.
pub(super) fn findings(out: &ResyncOut) -> String {
    let mut text = unread(&out.unread);
    for (cluster, findings) in &out.clusters {
        text.push_str(&format!("{cluster}: {}\n", count(findings.len(), "finding")));
        for finding in findings {
            text.push_str(&format!("  {}\n", clean(finding)));
        }
    }
    text
}

/// What a reconciliation would do.
pub(super) fn planned(out: &ResyncPlanOut) -> String {
    let mut text = unread(&out.unread);
    for (cluster, found) in &out.clusters {
        let counted = |does: Does| {
            let count = found.iter().filter(|one| one.does == does.name()).count();
            (count > 0).then(|| format!("{count} to {}", does.name()))
        };
        let counts: Vec<String> = Does::ALL.into_iter().filter_map(counted).collect();
        let sum = if counts.is_empty() { "nothing to do".to_owned() } else { counts.join(", ") };
        text.push_str(&format!("{cluster}: {sum}\n"));
        for one in found {
            text.push_str(&format!("  {:<7}  {}\n", clean(&one.does), clean(&one.why)));
        }
    }
    text + "nothing was changed\n"
}
