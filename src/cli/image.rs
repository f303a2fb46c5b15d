//! `drover image`: builds images (`builds.rs` follows that), lists, prunes and imports versions.

use std::collections::BTreeMap;

use drover_api::{
    BuildImageIn, BuildImageOut, ImagePlanOut, ImagesOut, ImportImageIn, ImportImageOut, Nothing,
    PruneImagesIn, PruneImagesOut,
};
use reqwest::Method;

use super::builds::{follow, notable};
use super::client::{Client, LONG_LIMIT, path};
use super::error::CliError;
use super::list_options::ListOptions;
use super::lists::{self, build_line, missing};
use super::options::{BuildImageOptions, ImageAction};
use super::sentences::{clean, count, unread};
use super::term::{Term, print};

/// Runs one of the commands; gives the exit code.
pub(super) async fn act(
    client: &Client,
    action: ImageAction,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    match action {
        ImageAction::Build(options) => return build(client, &options, json, term).await,
        ImageAction::List(options) => list(client, &options, json, term).await?,
        ImageAction::Prune { dry_run, unconfigured } => {
            let command = PruneImagesIn { dry_run, unconfigured };
            let step = term.live.step("drover looks for versions that nothing needs");
            let out: PruneImagesOut = client.post("/v1/images/prune", &command, LONG_LIMIT).await?;
            drop(step);
            print(term, json, &out, |out| pruned(out, dry_run))?;
        }
        ImageAction::Cancel { build } => {
            let path = path("images/builds", &build, "/cancel");
            client.report(Method::POST, &path).await?;
            print(term, json, &Nothing {}, |_| format!("build {} ends\n", clean(&build)))?;
        }
        ImageAction::Import { vmid, image, dry_run } => {
            let path = path("images", &image, "/import");
            let step = term.live.step(&format!("drover imports template {vmid}"));
            let out: ImportImageOut =
                client.post(&path, &ImportImageIn { vmid, dry_run }, LONG_LIMIT).await?;
            drop(step);
            print(term, json, &out, |out| {
                let (is, called) = match dry_run {
                    true => ("would be", "would be called"),
                    false => ("is", "is called"),
                };
                let text = format!(
                    "template {} on {} {is} version {} of {} and {called} {}\n",
                    out.vmid,
                    clean(&out.node),
                    out.version,
                    clean(&out.image),
                    out.name
                );
                let unreached = out.unreached.iter().map(|one| {
                    format!(
                        "node {}, which template {} names, does not reach it: its storage is not \
                         shared\n",
                        clean(&one.node),
                        clean(&one.template)
                    )
                });
                text + &unreached.collect::<String>()
            })?;
        }
    }
    Ok(0)
}

/// Builds an image, and follows its builds unless that is not wanted.
async fn build(
    client: &Client,
    options: &BuildImageOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<u8, CliError> {
    let command = BuildImageIn {
        node: options.node.clone(),
        variables: options.variables.clone(),
        afresh: options.afresh,
        dry_run: options.dry_run,
    };
    let path = path("images", &options.image, "/build");
    let step = term.live.step(&format!("drover looks what image {} needs", options.image));
    let out: BuildImageOut = client.post(&path, &command, LONG_LIMIT).await?;
    drop(step);
    let mut waited: BTreeMap<String, String> = BTreeMap::new();
    if !options.no_wait {
        let built =
            out.plans.iter().filter_map(|plan| Some((plan.build.clone()?, plan.node.clone())));
        waited.extend(built);
    }
    if waited.is_empty() || !json {
        print(term, json, &out, |out| out.plans.iter().map(planned).collect())?;
    }
    follow(client, waited, json, term).await
}

/// What a command to build comes to on a node.
fn planned(plan: &ImagePlanOut) -> String {
    let (node, version) = (clean(&plan.node), clean(&plan.version));
    let build = plan.build.as_deref().unwrap_or_default();
    match plan.does.as_str() {
        "upToDate" => {
            let vmid = plan.vmid.unwrap_or_default();
            format!("{node}: version {version} is up to date (VMID {vmid}): nothing to build\n")
        }
        "running" => format!("{node}: build {build} of version {version} runs already\n"),
        "started" => format!("{node}: build {build} of version {version} starts\n"),
        "wouldStart" => format!("{node}: a build of version {version} would start\n"),
        other => format!("{node}: {}\n", clean(other)),
    }
}

async fn list(
    client: &Client,
    options: &ListOptions,
    json: bool,
    term: &mut Term<'_>,
) -> Result<(), CliError> {
    let ImagesOut { images, versions, builds, unread } =
        client.get("/v1/images", LONG_LIMIT).await?;
    // Filters hide versions, which are there all the same.
    let missing = missing(&images, &versions);
    let whole = |versions| ImagesOut { images, versions, builds, unread };
    lists::show(term, json, options, versions, whole, |out, page| {
        missing.iter().for_each(|line| page.line(line));
        notable(&out.builds).into_iter().for_each(|build| build_line(build, page));
        lists::unread(&out.unread, page);
    })
}

fn pruned(out: &PruneImagesOut, dry_run: bool) -> String {
    let mut text = String::new();
    let going: Vec<_> = out.versions.iter().filter(|one| one.kept.is_none()).collect();
    for one in &going {
        let does = if dry_run { "would be removed" } else { "is removed" };
        let (image, node) = (clean(&one.image), clean(&one.node));
        text += &format!("{image} {} on {node} (VMID {}) {does}\n", one.version, one.vmid);
    }
    for (one, why) in out.versions.iter().filter_map(|one| Some((one, one.kept.as_ref()?))) {
        let (image, node) = (clean(&one.image), clean(&one.node));
        let (version, vmid) = (&one.version, one.vmid);
        text += &format!("{image} {version} on {node} (VMID {vmid}) stays: {}\n", clean(why));
    }
    text += &unread(&out.unread);
    if going.is_empty() {
        text += &format!("nothing to remove of {}\n", count(out.versions.len(), "version"));
    }
    text
}
