//! Compares the privileges that the login holds with those that the configuration needs.

use std::collections::{BTreeMap, BTreeSet};

use drover_ci::{Remedy, Severity};

use super::token::{LoginFacts, ROOT};
use super::{CloudCheck, Cluster};
use crate::rights::{GrantOptions, Need, Needs, RoleKind, Without, grants};

/// The prefix of the roles that the suggested commands make.
pub const ROLE_PREFIX: &str = "Drover";

impl CloudCheck<'_> {
    /// Reports each missing privilege with its path and the commands that grant it.
    pub(super) async fn privileges(&mut self, cluster: &Cluster, login: Option<&LoginFacts>) {
        let needs = Needs::of(self.herd, &self.cloud.id, cluster.release, &cluster.facts);
        let wanted: Vec<&Need> = needs
            .all
            .iter()
            .filter(|need| !need.row.feature.is_quiet())
            .filter(|need| !need.asked.iter().any(|path| path.contains('<')))
            .collect();
        let paths: BTreeSet<&str> =
            wanted.iter().flat_map(|need| need.asked.iter().map(String::as_str)).collect();
        let mut held: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for path in paths {
            match self.client.privileges(path, None).await {
                Ok(found) => drop(held.insert(path, found.into_keys().collect())),
                Err(error) => {
                    let text = self.error_text(&error);
                    self.report.fail("privileges", text, []);
                    return;
                }
            }
        }
        let holds = |need: &Need, held: &BTreeMap<&str, BTreeSet<String>>| {
            let mut sets = need.asked.iter().filter_map(|path| held.get(path.as_str()));
            sets.any(|set| need.any_of.iter().any(|name| set.contains(*name)))
        };
        let (there, missing): (Vec<&Need>, Vec<&Need>) =
            wanted.into_iter().partition(|need| holds(need, &held));
        if missing.iter().all(|need| need.row.feature.is_optional()) {
            let about = "privileges";
            let paths: BTreeSet<&str> = there.iter().map(|need| need.path.as_str()).collect();
            // The configuration of a template that was not read may need more.
            let far =
                if needs.unknown.is_empty() { "" } else { ", as far as templates could be read" };
            let (count, paths) = (there.len(), paths.len());
            let text = format!("the login holds all {count} that it needs on {paths} paths{far}");
            self.report.ok(about, text);
        }
        let roles = self.client.roles().await.unwrap_or_default();
        for need in missing {
            let name = need.any_of.join(" or ");
            let about = format!("privilege {name} on {}", need.path);
            let row = need.row;
            let for_what = format!("{}: {}", row.feature.label(), row.calls);
            if row.feature.is_optional() {
                let Without::Degrades(effect) = row.without else { continue };
                let remedy = self.setup(" --leftovers");
                self.report.warn(about, format!("is not held: {effect}"), remedy);
                continue;
            }
            let (mark, text) = match row.without {
                Without::Fails => (Severity::Fail, format!("is missing ({for_what})")),
                Without::Degrades(effect) => {
                    (Severity::Warn, format!("is missing ({for_what}): {effect}"))
                }
            };
            let remedy = self.grant_commands(need, &needs, &roles, login).await;
            self.report.add(mark, about, text, remedy);
        }
    }

    /// The commands that grant what is missing.
    async fn grant_commands(
        &self,
        need: &Need,
        needs: &Needs,
        roles: &BTreeMap<String, BTreeSet<String>>,
        login: Option<&LoginFacts>,
    ) -> Vec<Remedy> {
        let kind = RoleKind::of(need.row.at);
        let role = kind.name(ROLE_PREFIX);
        let all = grants(needs, &BTreeMap::new(), GrantOptions::default());
        let whole = all.roles.get(&kind).cloned().unwrap_or_default();
        let mut lines = Vec::new();
        let spell = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(" ");
        match roles.get(&role) {
            None => {
                let command = format!("pveum role add {role} --privs \"{}\"", spell(&whole));
                lines.push(Remedy::on_any_node(command));
            }
            Some(now) => {
                let lacks: BTreeSet<String> = whole.difference(now).cloned().collect();
                if !lacks.is_empty() {
                    let lacks = spell(&lacks);
                    let command =
                        format!("pveum role modify {role} --privs \"{lacks}\" --append 1");
                    lines.push(Remedy::on_any_node(command));
                }
            }
        }
        let path = if kind == RoleKind::Reader { "/" } else { need.path.as_str() };
        let Some(login) = login else { return lines };
        let subjects = self.subjects(need.any_of, &need.asked, login).await;
        let command = format!("pveum acl modify {path}{subjects} --roles {role}");
        lines.push(Remedy::on_any_node(command));
        lines
    }

    /// The users and tokens that need a grant on these paths, as options of `pveum acl`.
    pub(super) async fn subjects(
        &self,
        any_of: &[&str],
        asked: &[String],
        login: &LoginFacts,
    ) -> String {
        let mut subjects = String::new();
        if !self.user_holds(any_of, asked, login).await {
            subjects.push_str(&format!(" --users {}", login.user));
        }
        if let (Some(token), true) = (&login.token, login.separate != Some(false)) {
            subjects.push_str(&format!(" --tokens '{token}'"));
        }
        subjects
    }

    /// Whether the user of a token with separate privileges holds what the token lacks.
    async fn user_holds(&self, any_of: &[&str], asked: &[String], login: &LoginFacts) -> bool {
        if login.token.is_none() || login.separate == Some(false) {
            return false;
        }
        if login.user == ROOT {
            return true;
        }
        for path in asked {
            let found = self.client.privileges(path, Some(&login.user)).await.unwrap_or_default();
            if any_of.iter().any(|name| found.contains_key(*name)) {
                return true;
            }
        }
        false
    }
}
