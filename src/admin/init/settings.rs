//! What is wrong with single answers, whatever the cluster's templates are.

use drover_model::labels::LabelExpression;

use super::choice::{VmidRange, range_problem};
use super::cluster::ClusterSeen;
use super::proposal::{Answers, GUEST_USER, POOL, given, labels, other_drovers, vmids};

/// What is wrong with the cluster, and with answers that are not about the template. `earlier` are the
/// VMIDs of an earlier run, which may have agents in them.
pub fn wrong_settings(
    seen: &ClusterSeen,
    answers: &Answers,
    earlier: Option<VmidRange>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if !seen.quorate {
        let text = "the cluster has no quorum, so nothing can be made there: \
                    `pvecm status` on a node says which nodes are missing";
        wrong.push(text.to_owned());
    }
    let vmids = vmids(seen, answers);
    if earlier != Some(vmids) {
        wrong.extend(range_problem(vmids, &seen.vmids, other_drovers(seen, answers)));
    }
    wrong.extend(unknown_node(seen, answers));
    wrong.extend(wrong_label(&labels(answers)));
    let word = |text: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !text.is_empty() && text.chars().all(plain)
    };
    let (pool, guest_user) = (given(&answers.pool, POOL), given(&answers.guest_user, GUEST_USER));
    if !word(&pool) {
        wrong.push(format!("`{pool}` is no name of a pool: --pool drover"));
    }
    if !word(&guest_user) {
        wrong.push(format!("`{guest_user}` is no name of a user: --guest-user debian"));
    }
    let token = answers.token();
    let parts = token.split_once('!').and_then(|(user, name)| Some((user.split_once('@')?, name)));
    match parts {
        Some(((user, realm), name)) if word(user) && word(realm) && word(name) => {}
        Some(_) | None => {
            wrong.push(format!("`{token}` is no token: --token drover@pve!ci"));
        }
    }
    if token.starts_with("root@pam!") {
        let text =
            "a token of root@pam may do everything: --token drover@pve!ci is made with few rights";
        wrong.push(text.to_owned());
    }
    wrong
}

/// A node that was named, and that the cluster does not have.
fn unknown_node(seen: &ClusterSeen, answers: &Answers) -> Option<String> {
    let named = answers.node.as_ref().filter(|named| !has_node(seen, named))?;
    let known: Vec<&str> = seen.nodes.iter().map(|one| one.name.as_str()).collect();
    Some(format!("the cluster has no node `{named}`; it has {}", known.join(", ")))
}

pub(super) fn has_node(seen: &ClusterSeen, name: &str) -> bool {
    seen.nodes.iter().any(|one| one.name == name)
}

/// Why a label does not serve: nobody could ask for it, since its signs mean something in an expression.
fn wrong_label(labels: &[String]) -> Option<String> {
    let is_plain = |label: &str| {
        let alone = LabelExpression::parse(label).ok().and_then(|all| all.conjunction());
        alone.is_some_and(|all| all.iter().eq([label])) && !label.contains([',', '\\'])
    };
    if labels.is_empty() {
        return Some("agents need a label: --labels linux,docker".to_owned());
    }
    let odd = labels.iter().find(|label| !is_plain(label))?;
    Some(format!(
        "`{odd}` is no label: labels are words without blanks and without the signs of label expressions, \
         such as `&&`, `||`, `!` and parentheses: --labels linux,docker"
    ))
}

/// Reads the URL of a cloud image.
///
/// # Errors
/// What is wrong with it, and how to write it.
pub fn image_url(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some(("http" | "https", rest)) if !rest.is_empty() => Ok(text.to_owned()),
        Some(_) | None => {
            Err(format!("`{text}` is no URL: write https://…, with the file at its end"))
        }
    }
}

/// Reads the SHA-512 or SHA-256 of a cloud image.
///
/// # Errors
/// How to write it.
pub fn image_checksum(text: &str) -> Result<String, String> {
    let sound = matches!(text.len(), 64 | 128) && text.chars().all(|c| c.is_ascii_hexdigit());
    sound.then(|| text.to_owned()).ok_or("a sum has 64 or 128 hexadecimal digits".to_owned())
}
