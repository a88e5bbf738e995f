// Package program keeps the programs that upgrades bring to a head, and selects which one the head runs: the installed
// one, or one of them.
//
// They are in DATA-DIR/program, each in a directory that is named by the hex digits of its SHA-256, beside state.json.
// Every start of the installed program looks there first ([Dir.Start]), and replaces itself by the selected one. A
// selected program must confirm that it works. One that ends three times before that is given up, as is one that does
// not confirm in time: the head runs what it ran before. So a program that does not work costs its head some seconds,
// by whatever its process is started again.
//
// Where the installed program is replaced on the host, as by a package, it runs: what was installed last does.
package program
