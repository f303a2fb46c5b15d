//! Versions of images, and builds.

use drover_api::{ImageBuildOut, ImageOut, ImageVersionOut};

use super::Listed;
use crate::cli::table::{Cell, Column, Kind, Page, View, column};

impl Listed for ImageVersionOut {
    const COLUMNS: &'static [Column] = &[
        column("IMAGE", Kind::Name, 0),
        column("VERSION", Kind::Name, 0),
        column("NODE", Kind::Name, 1),
        column("VMID", Kind::Number, 0),
        column("BORN", Kind::Time, 2),
        column("STAYS", Kind::Text, 1),
    ];

    fn name(&self) -> String {
        self.image.clone()
    }

    fn row(&self, _: &View) -> Vec<Cell> {
        vec![
            Cell::of(&self.image),
            Cell::of(&self.version),
            Cell::of(&self.node),
            Cell::of(self.vmid),
            Cell::Time(self.born.clone()),
            Cell::of(self.kept.as_deref().unwrap_or("pruning removes it")),
        ]
    }
}

/// Images whose present version is not there, each with the command that makes it.
pub(in crate::cli) fn missing(images: &[ImageOut], versions: &[ImageVersionOut]) -> Vec<String> {
    let lacks = |image: &ImageOut| {
        let ImageOut { id, version, builds } = image;
        // An imported version has no recipe's name.
        let is_it =
            |one: &ImageVersionOut| one.image == *id && (!builds || one.version == *version);
        match (versions.iter().any(is_it), builds) {
            (true, _) => None,
            (false, true) => Some(format!(
                "{id}: version {version} of its recipe is not there; `drover image build {id}` \
                 builds it"
            )),
            (false, false) => Some(format!(
                "{id}: there is no version, and no source to build one of; `drover image import \
                 VMID --as {id}` makes a template one"
            )),
        }
    };
    images.iter().filter_map(lacks).collect()
}

/// How far the build of an image is.
pub(in crate::cli) fn build_line(build: &ImageBuildOut, page: &mut Page) {
    let ImageBuildOut { image, node, build: id, .. } = build;
    let view = page.view();
    match (&build.failed_at, &build.failure) {
        (Some(at), Some(_)) => page.line(&format!(
            "image {image} on {node}: build {id} failed {}: {}",
            view.when(at),
            described(build, &view)
        )),
        (_, _) => {
            let state = build.state;
            page.line(&format!("image {image} on {node}: build {id}: {state} {}", build.detail));
        }
    }
}

/// What a build does or waits for; where it failed, why, and what drover does then.
pub(in crate::cli) fn described(build: &ImageBuildOut, view: &View) -> String {
    let detail = build.detail.clone();
    let Some(failure) = &build.failure else { return detail };
    let text = match (build.state.is_over(), detail.is_empty()) {
        (true, _) => detail,
        (false, true) => format!("{failure}; drover removes its guest"),
        (false, false) => format!("{failure}; drover removes its guest ({detail})"),
    };
    match (&build.next_build, build.again, &build.next_try) {
        (Some(next), ..) => format!("{text}; build {next} goes on in its place"),
        (None, true, _) => format!("{text}; drover builds it again"),
        (None, false, Some(at)) => format!(
            "{text}; the next try is {}, where a template waits for the image then",
            view.when(at)
        ),
        (None, false, None) => text,
    }
}
