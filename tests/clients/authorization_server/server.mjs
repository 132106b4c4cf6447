// A small authorization server: OAuth 2.1 with dynamic registration, PKCE and resource indicators.
//
// node server.mjs PORT
//
// Everybody may log in, with any password. Ada has the scopes read and admin, all others read.

import Provider, { interactionPolicy } from "oidc-provider";

const port = Number(process.argv[2]);
const issuer = `http://127.0.0.1:${port}`;
const everything = ["read", "admin"];

const scopesOf = (account) => (account === "ada" ? everything : ["read"]);

// Nobody is asked for consent: the account decides what a client may do.
const policy = interactionPolicy.base();
policy.remove("consent");

async function grantFor(context) {
  const { client, session, params } = context.oidc;
  const grant = new context.oidc.provider.Grant({
    clientId: client.clientId,
    accountId: session.accountId,
  });
  grant.addResourceScope(params.resource, scopesOf(session.accountId).join(" "));
  await grant.save();
  return grant;
}

const provider = new Provider(issuer, {
  scopes: everything,
  interactions: { policy },
  loadExistingGrant: grantFor,
  pkce: { required: () => true },
  cookies: { keys: ["only for tests"] },
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (context, resource) => ({
        scope: everything.join(" "),
        audience: resource,
        accessTokenFormat: "jwt",
        accessTokenTTL: 600,
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
});

provider.listen(port, "127.0.0.1", () => console.log(issuer));
