# What ipmi_sim runs to ask or change its machine: SOCKET get power | set power 1 | get boot | set boot "pxe" ...
# It passes the words on as one line and prints the answer. An answer that begins with "!" is an error.
use strict;
use warnings;
use IO::Socket::UNIX;

my $path = shift @ARGV;
my $socket = IO::Socket::UNIX->new(Peer => $path) or die "connect $path: $!\n";
print $socket join(" ", @ARGV), "\n";
$socket->flush;
my $answer = join "", <$socket>;
print $answer;
exit($answer =~ /^!/ ? 1 : 0);
