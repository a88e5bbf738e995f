// Package auth proves who asks and keeps what must stay secret: the cluster's certificate authority, the tokens of
// accounts and booting machines, the signatures of agents, roles, and secrets sealed at rest.
//
// [Keys] is everything secret that a full head keeps on its disk: it is made once by [Init], read by [Load], and handed
// to another full head as a [Bundle]. A witness holds none of it. The rest is stateless:
//
//   - People and programs: TLS to a head whose CA they pin (package client), and an API token ([NewToken], [CheckToken])
//     whose role decides what they may do ([Allow]).
//   - A booting machine: a token in its boot script, good for one purpose, machine, MAC and epoch ([Keys.SignBoot]).
//   - An agent: a key that it made itself and registered with its boot token; it signs each request ([SignRequest]), so
//     that a balancer may end TLS on the way.
//   - Secrets in records: [Sealer], bound to the field they stand in. In memory they are [Secret], which does not print.
package auth
