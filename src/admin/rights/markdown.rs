//! The table of privileges as the book shows it, in `src/book/rights.md`.

use super::table::{At, Release, Row, TABLE, Without};

impl At {
    /// Every kind of path, in the order of the table.
    pub const ALL: [Self; 12] = [
        Self::Root,
        Self::Access,
        Self::Nodes,
        Self::AllGuests,
        Self::Guests,
        Self::Template,
        Self::Storage,
        Self::DiscStorage,
        Self::ImportStorage,
        Self::Mapping,
        Self::OsTemplateStorage,
        Self::Bridge,
    ];

    /// The kind of path, for people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Root => "`/`",
            Self::Access => "`/access`",
            Self::Nodes => "`/nodes`",
            Self::AllGuests => "`/vms`",
            Self::Guests => "`/pool/{targetPool}`, without one `/vms`",
            Self::Template => "`/vms/{templateVmId}`",
            Self::Storage => "`/storage/{storage}` of the disks",
            Self::DiscStorage => "`/storage/{cloudInitIsoStorage}`",
            Self::ImportStorage => "`/storage/{importStorage}`",
            Self::Mapping => "`/mapping/{kind}/{id}`",
            Self::OsTemplateStorage => "`/storage/{storage}` of osTemplate",
            Self::Bridge => "`/sdn/zones/{zone}/{bridge}`",
        }
    }
}

/// One line of the table: where, which privilege, for what, and the effect of its absence.
fn line(row: &Row) -> String {
    let names = match (row.any_of(Release::V8), row.any_of(Release::V9)) {
        ([eight, ..], [nine, ..]) if eight != nine => format!("`{eight}` on 8, `{nine}` on 9"),
        ([name, ..], _) => format!("`{name}`"),
        ([], _) => String::new(),
    };
    let without = match row.without {
        Without::Fails => "that does not work",
        Without::Degrades(effect) => effect,
    };
    format!("| {} | {names} | {} | {without} |\n", row.at.label(), row.feature.label())
}

/// The table in Markdown, one line for each privilege, ordered by path.
pub fn markdown() -> String {
    let mut text = "| on | privilege | for | without it |\n|---|---|---|---|\n".to_owned();
    for at in At::ALL {
        text.extend(TABLE.iter().filter(|row| row.at == at).map(line));
    }
    text
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: the book shows the table that the code uses.

    #[test]
    fn the_book_holds_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/rights.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table = markdown();
        assert!(page.contains(&table), "put this into src/book/rights.md:\n{table}");
        assert!(TABLE.iter().all(|row| At::ALL.contains(&row.at)));
    }
}
