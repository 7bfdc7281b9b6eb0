# The dh sequence that runs dh_sframe before dh_strip, so that programs and their debug symbols have the same section
# headers.
use strict;
use warnings;
use Debian::Debhelper::Dh_Lib;

insert_before('dh_strip', 'dh_sframe');

1;
