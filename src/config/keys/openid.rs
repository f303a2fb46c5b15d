//! Keys of `service.openId`.

use drover_api::Role;

use super::credential::{SECRET_KEYS, SECRETS};
use super::service::ROLES;
use super::{Key, Raw, Table, choice, flag, mappings, text, texts, value, whole};

table! {
    /// Keys of `service.openId`.
    OPEN_ID, one_of: SECRET_KEYS, shared: SECRETS => RawOpenId {
        "issuer" => issuer: String,
            text().required().check(value::url).eg(r#""https://id.example.com/realms/ci""#),
            "provider of OpenID Connect, as it calls itself";
        "name" => name: Option<String>, text().eg("Keycloak"),
            "name of the provider on the button; unset: its host";
        "clientId" => client_id: String, text().required().check(value::filled).eg("drover"),
            "client at the provider; its secret is given by one of the secret keys";
        "redirectUrl" => redirect_url: String,
            text().required().check(value::callback)
                .eg(r#""https://drover.example.com/login/openid/callback""#),
            "address of drover's page, with the path /login/openid/callback, as the client at the provider \
             has it";
        "scopes" => scopes: Vec<String>, texts().or_empty().eg("[profile, groups]"),
            "scopes that drover asks for beside openid; empty: profile";
        "userClaim" => user_claim: String, text().or_text("preferred_username").check(value::filled),
            "claim with the user's name; sub never changes";
        "groupsClaim" => groups_claim: String, text().or_text("groups").check(value::filled),
            "claim with the user's groups; dots lead into mappings";
        "groups", mappings(&OPEN_ID_GROUP),
            "groups of the provider that may log in, each with a role";
        "sessionHours" => session_hours: u64, whole(1..=10).or(8),
            "hours after which a user logs in again";
        "endSession" => end_session: bool, flag().or_flag(false),
            "true: a logout also ends the session at the provider; its client needs the address of drover's \
             page with the path /login as a post-logout redirect URI";
        "caFile", text().eg("/etc/drover/id-ca.pem"),
            "CA certificates of the provider, PEM; unset: those of the system";
    }
}

table! {
    /// Keys of each item of `service.openId.groups`.
    OPEN_ID_GROUP => RawOpenIdGroup {
        "name" => name: String, text().required().check(value::filled).eg(r#""/ci/operators""#),
            "group as the provider spells it";
        "role" => role: Role, choice(ROLES).required().eg("operator"),
            "what its members may do; the highest of several counts";
        "group" => group: Option<String>, text().eg(r#""build""#),
            "group whose leases its members share; the first of several counts; unset: none";
    }
}
