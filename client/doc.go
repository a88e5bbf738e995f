// Package client is Trivet's Go SDK: it uses any head of a cluster, and continues at another one when that head is
// gone.
//
//	c, err := client.New(client.Config{Endpoints: []string{"https://10.0.0.5:7480"}, Trust: pin, Token: token})
//	machines := client.Of[trivet.Machine](c)
//	m, err := machines.Get(ctx, "m1")
//	for e, err := range machines.Watch(ctx, client.WatchOptions{}) { ... }
//
// Of kinds whose records belong to projects, these are the records of the default project; In selects another one.
//
// Errors wrap the sentinels of package trivet, as they did at the head. A call whose response was lost is retried if
// that is safe, which it is for every call except those that issue a token or change a machine's state.
package client
