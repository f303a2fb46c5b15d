// A real provider of OpenID Connect: npm `oidc-provider`, certified by the OpenID Foundation, with its own pages
// for people. Made up here are the people, of whom each may log in with any password, and their groups.
//
// usage: node openid_provider.mjs PACKAGE REDIRECT_URI...   prints the issuer once it listens

import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [, , folder, ...redirects] = process.argv;
const { default: Provider } = await import(pathToFileURL(`${folder}/lib/index.js`));

const groups = { ann: ["/ci/operators", "/staff"], bob: ["/staff"] };

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "drover",
      client_secret: "the secret: of drover",
      redirect_uris: redirects,
      post_logout_redirect_uris: redirects.map((one) => one.replace("/login/openid/callback", "/login")),
      response_types: ["code"],
      grant_types: ["authorization_code"],
    }],
    claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
    scopes: ["openid", "profile", "groups"],
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: id, groups: groups[id] ?? [] }),
    }),
    pkce: { required: () => true },
    cookies: { keys: ["a key of the tests"] },
  });
  server.on("request", provider.callback());
  console.log(`issuer ${issuer}`);
});
