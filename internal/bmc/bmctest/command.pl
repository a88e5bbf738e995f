#!/usr/bin/perl
# A power command (protocol exec) for a machine of the test: see internal/bmc/exec.go. It checks user and password and
# passes the request on to a unix socket.
use strict;
use warnings;
use IO::Socket::UNIX;

my ($path, $user, $password) = ("@PATH@", "@USER@", "@PASSWORD@");
my $input = join "", <STDIN>;
exit 77 unless $input =~ /"user":"\Q$user\E","password":"\Q$password\E"/;
my %request = (
	"status" => "get power", "on" => "set power 1", "off" => "set power 0",
	"boot-network" => "set boot pxe", "boot-disk" => "set boot default",
);
my $line = $request{$ARGV[0]} or exit 64;
my $socket = IO::Socket::UNIX->new(Peer => $path) or die "connect $path: $!\n";
print $socket "$line\n";
$socket->flush;
my $answer = join "", <$socket>;
die substr($answer, 1) if $answer =~ /^!/;
print $answer =~ /power:1/ ? "on\n" : "off\n" if $ARGV[0] eq "status";
