//! Who a caller is to drover.

use actix_web::web;
use drover_api::WhoAmIOut;

use super::auth::Caller;
use super::state::State;

/// Says who makes the request: the principal that its leases are of, its role, and its group.
#[utoipa::path(get, path = "/v1/whoami", responses((status = 200, body = WhoAmIOut)))]
pub(super) async fn show(
    state: web::Data<State>,
    caller: web::ReqData<Caller>,
) -> web::Json<WhoAmIOut> {
    let Caller { principal, role, group } = caller.into_inner();
    let configuration = state.doors.configuration.clone();
    web::Json(WhoAmIOut { principal, role, group, configuration: Some(configuration) })
}

#[cfg(test)]
mod tests {
    use drover_api::Role;

    use super::super::testing::Served;
    use super::*;

    // Invariant: a caller learns the name that its leases have.

    #[tokio::test]
    #[expect(clippy::unwrap_used, reason = "a test may panic")]
    async fn each_caller_hears_its_own_principal_and_role() {
        let served = Served::default();
        for (role, wanted) in
            [("viewer", Role::Viewer), ("operator", Role::Operator), ("admin", Role::Admin)]
        {
            let request = served.http.get(format!("{}/v1/whoami", served.base));
            let answer = request.bearer_auth(format!("{role}-token")).send().await.unwrap();
            let out: WhoAmIOut = answer.json().await.unwrap();
            assert_eq!((out.principal, out.role), (format!("token:{role}"), wanted));
        }
        let stranger = served.http.get(format!("{}/v1/whoami", served.base)).send().await.unwrap();
        assert_eq!(stranger.status(), 401);
        served.stop().await;
    }
}
