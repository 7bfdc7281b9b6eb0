# The sequence of dh that runs dh_sframe: before dh_strip, so that the files with the debug symbols have the headers of
# the sections that the programs have.
use strict;
use warnings;
use Debian::Debhelper::Dh_Lib;

insert_before('dh_strip', 'dh_sframe');

1;
