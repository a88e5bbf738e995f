// Tool is the only program in the tests' containers and installed systems: static, with several commands.
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
)

func main() {
	switch args := os.Args; {
	case len(args) > 1 && args[1] == "exit":
		fmt.Fprintln(os.Stderr, "about to fail")
		code, _ := strconv.Atoi(args[2])
		os.Exit(code)
	case len(args) > 1 && args[1] == "hang":
		fmt.Println("hanging")
		time.Sleep(time.Hour)
	case len(args) > 2 && args[1] == "write":
		if err := os.WriteFile(args[2], []byte(args[3]), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		show()
	}
}

// show prints the program's environment.
func show() {
	dir, _ := os.Getwd()
	host, _ := os.Hostname()
	fmt.Println("args", strings.Join(os.Args[1:], " "))
	fmt.Println("pid", os.Getpid(), "uid", os.Getuid(), "gid", os.Getgid(), "dir", dir, "host", host)
	for _, name := range []string{"/", "/dev", "/target"} {
		entries, _ := os.ReadDir(name)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		fmt.Println(name, strings.Join(names, " "))
	}
	env := os.Environ()
	sort.Strings(env)
	for _, e := range env {
		fmt.Println("env", e)
	}
}
