// The former agent of a platform, which another one has replaced: it must not be started.
package main

import "time"

func main() {
	println("FORMER AGENT")
	time.Sleep(time.Hour)
}
