# Uses features of Perl, ARGV[0] times.
use strict; use warnings;
my $total = 0;
local $SIG{USR1} = sub { $total++ };
for my $i (1 .. $ARGV[0]) {
	my %h = map { $_ => $_ ** 2 } 1 .. 30;
	$total += $_ for values %h;
	my $s = join ",", sort { $h{$a} <=> $h{$b} } keys %h;
	$total += length($s =~ s/(\d)(\d)/$2-$1/gr);
	eval { die { code => $i } }; $total += $@->{code};
	$total += () = $s =~ /(?<x>\d+)(?=,)/g;
	my @l = map { [ $_, sprintf("%08.3f|%s", $_ / 7, reverse $_) ] } 1 .. 20;
	$total += length pack("A5 n C/a*", $s, $i, $l[3][1]);
	kill USR1 => $$;
	$total += sub { my $f = shift; $_[0] < 2 ? 1 : $f->($f, $_[0] - 1) + 1 }->(sub { my $f = shift; $_[0] < 2 ? 1 : $f->($f, $_[0] - 1) + 1 }, 12);
}
print "$total\n";
