// Package client is Trivet's Go SDK: it speaks to any head of a cluster and goes on at another one when that head is
// gone.
//
//	c, err := client.New(client.Config{Endpoints: []string{"https://10.0.0.5:7480"}, Trust: pin, Token: token})
//	machines := client.Of[trivet.Machine](c)
//	m, err := machines.Get(ctx, "m1")
//	for e, err := range machines.Watch(ctx, client.WatchOptions{}) { ... }
//
// Errors carry the sentinels of package trivet, as they were at the head. A call that was sent and not answered is
// repeated where that is safe, which it is for everything but the issue of a token.
package client
