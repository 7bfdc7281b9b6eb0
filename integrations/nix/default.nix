# For nativeBuildInputs: pkgs.callPackage /path/to/integrations/nix { }
{ lib, buildGoModule, makeSetupHook }:

let
  cfi2sframe = buildGoModule {
    pname = "cfi2sframe";
    version = "0";
    src = lib.cleanSource ../..;
    # What nix prints as the hash that it got.
    vendorHash = lib.fakeHash;
    subPackages = [ "cmd/cfi2sframe" ];
    env.CGO_ENABLED = 0;
  };
in
makeSetupHook {
  name = "sframe-hook";
  substitutions = { inherit cfi2sframe; };
} ./setup-hook.sh
