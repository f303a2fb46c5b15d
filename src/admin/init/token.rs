//! A token that exists already: Proxmox shows a secret once, so a computer without it needs another one.

use proxmox_client::admin::User;

/// A token that exists, and one that does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenToken {
    /// `user@realm!name`.
    pub token: String,
    /// A token of the same name, of a user that does not exist.
    pub free: String,
}

/// Whether a token exists, and which one does not.
pub fn taken_token(token: &str, users: &[User]) -> Option<TakenToken> {
    let (userid, name) = token.split_once('!')?;
    let (user, realm) = userid.rsplit_once('@')?;
    let own = users.iter().find(|one| one.userid == userid)?;
    if !own.tokens.iter().any(|one| one.tokenid == name) {
        return None;
    }
    let stem = user.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let others = (2..).map(|number| format!("{stem}{number}@{realm}"));
    let free = others.into_iter().find(|other| users.iter().all(|one| one.userid != *other))?;
    Some(TakenToken { token: token.to_owned(), free: format!("{free}!{name}") })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    // Invariant: a token that exists is never made again, and the one that is named in its place is free.

    #[test]
    fn a_token_that_exists_is_found_and_a_free_one_is_named() {
        let users = r#"[{"userid": "drover@pve", "tokens": [{"tokenid": "ci"}]}, {"userid": "drover2@pve"}]"#;
        let users: Vec<User> = serde_json::from_str(users).unwrap();
        let free = |token: &str| taken_token(token, &users).map(|taken| taken.free);
        assert_eq!(free("drover@pve!ci"), Some("drover3@pve!ci".to_owned()));
        for other in ["drover@pve!ci2", "drover2@pve!ci", "drover@pam!ci", "drover"] {
            assert_eq!(free(other), None, "{other}");
        }
    }
}
