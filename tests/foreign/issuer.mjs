// npm's oidc-provider as an issuer on loopback. Reads its settings as one line of JSON from standard input, and ends with
// it. People sign in with any name; `people` says what else is claimed of them.
import { createInterface } from "node:readline";
import Provider from "oidc-provider";

const lines = createInterface({ input: process.stdin });
const settings = JSON.parse((await lines[Symbol.asyncIterator]().next()).value);
const { port, keys, clients, people, seconds } = settings;

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients,
  jwks: { keys },
  claims: { openid: ["sub", "roles", "groups", "shift"] },
  conformIdTokenClaims: false,
  cookies: { keys: ["only for tests"] },
  enabledJWA: { idTokenSigningAlgValues: ["RS256", "ES256", "EdDSA", "PS256"] },
  features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: false } },
  findAccount: (_, sub) => ({ accountId: sub, claims: async () => ({ ...people[sub], sub }) }),
  issueRefreshToken: async (_, client) => client.grantTypeAllowed("refresh_token"),
  loadExistingGrant: async (ctx) => {
    const { client, session } = ctx.oidc;
    const grant = new ctx.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
    grant.addOIDCScope("openid");
    await grant.save();
    return grant;
  },
  pkce: { required: () => true },
  ttl: { AccessToken: 3600, AuthorizationCode: 60, Grant: 3600, IdToken: seconds, Interaction: 3600, RefreshToken: 3600, Session: 3600 },
});
provider.on("server_error", (_, error) => console.error(error));
provider.listen(port, "127.0.0.1", () => console.log("ready"));
lines.on("close", () => process.exit(0));
