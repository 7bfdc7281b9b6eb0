# A derivation with the hook, and with as much of stdenv as the hook deals with (builder.sh). Compiler and tools are
# those of the machine, and so it is built without a sandbox.
{ hook, flags ? "", off ? "" }:

derivation {
  name = "sframe-test";
  system = builtins.currentSystem;
  builder = "/bin/bash";
  args = [ ./builder.sh ];
  outputs = [ "out" "lib" "debug" ];
  PATH = "/usr/bin:/bin";
  hook = /. + hook;
  sframeFlags = flags;
  dontSFrame = off;
}
