// Package auth implements authentication, authorization and secrets: the cluster's certificate authority, the tokens of
// accounts and booting machines, the signatures of agents, roles, and secrets sealed at rest.
//
// [Keys] is all secret keys that a full head has on disk: created by [Init], read by [Load], and sent to another full
// head as a [Bundle]. A witness has none of them. The rest is stateless:
//
//   - People and programs: TLS to a head whose CA they pin (package client), and an API token ([NewToken],
//     [CheckToken]) whose role decides what they may do ([Allow]).
//   - A booting machine: a token in its boot script, valid for one purpose, machine, MAC and epoch ([Keys.SignBoot]).
//   - An agent: a key that it generated and registered with its boot token. It signs each request ([SignRequest]), so
//     a load balancer may terminate TLS.
//   - Secrets in records: [Sealer], bound to their field. In memory they are [Secret], which does not print.
package auth
