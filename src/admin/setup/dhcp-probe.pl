use strict; use warnings; use Socket;
# Asks for an address once and tells who offers one; nothing is taken.
my ($link, $from, $to, $where) = @ARGV; $from //= 68; $to //= 67; $where //= "255.255.255.255";
socket(my $s, PF_INET, SOCK_DGRAM, 17) or die "no socket: $!";
setsockopt($s, SOL_SOCKET, SO_REUSEADDR, 1); setsockopt($s, SOL_SOCKET, SO_BROADCAST, 1);
setsockopt($s, SOL_SOCKET, 25, "$link\0") or die "not on $link: $!";
bind($s, sockaddr_in($from, INADDR_ANY)) or die "port $from: $!";
my @mac = (2, map { int rand 256 } 1 .. 5); my $id = int rand 4294967295;
my $ask = pack("CCCCNnn x16 C6 x10 x192 N", 1, 1, 6, 0, $id, 0, 0x8000, @mac, 0x63825363) . pack("CCC C", 53, 1, 1, 255);
$ask .= "\0" x (300 - length $ask);
send($s, $ask, 0, sockaddr_in($to, inet_aton($where))) or die "nothing sent: $!";
my $end = time + 4; my %told;
while ((my $left = $end - time) > 0) {
  my $set = ""; vec($set, fileno $s, 1) = 1; next unless select($set, undef, undef, $left);
  my $peer = recv($s, my $said, 1500, 0) or next; next if length $said < 240 or unpack("x4 N", $said) != $id or ord $said != 2;
  my (undef, $host) = sockaddr_in($peer); my $who = inet_ntoa($host); print "offer $who\n" unless $told{$who}++;
  last;
}
print "asked\n";
