# rampack for Nix: `nix-build dist/nix`. The crates come by the checksums of Cargo.lock.
{ pkgs ? import <nixpkgs> { } }:

let
  # What the units and the daemon run beside rampack.
  programs = pkgs.lib.makeBinPath (with pkgs; [
    btrfs-progs coreutils e2fsprogs f2fs-tools systemd util-linux xfsprogs
  ]);
in
pkgs.rustPlatform.buildRustPackage {
  pname = "rampack";
  version = (builtins.fromTOML (builtins.readFile ../../Cargo.toml)).workspace.package.version;
  src = builtins.path {
    path = ../..;
    name = "rampack-source";
    filter = path: _: ! builtins.elem (baseNameOf path) [ "target" ".git" ];
  };
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package" "rampack-cli" "--features" "metrics,remote,top,vhost" ];
  nativeBuildInputs = [ pkgs.installShellFiles ];
  # Tests need loop devices, FUSE and swap, which a build has not.
  doCheck = false;
  postInstall = ''
    install -D --mode=644 --target-directory=$out/lib/systemd/system dist/systemd/*.service
    sed --in-place --expression "s,=rampack ,=$out/bin/rampack ," \
      --expression "s,^\[Service\],&\nEnvironment=PATH=$out/bin:${programs}," \
      $out/lib/systemd/system/*.service
    install -D --mode=644 --target-directory=$out/share/doc/rampack/examples dist/examples/*.toml
    cargo run --offline --package rampack-cli --example manuals -- "$PWD/manuals" 1980-01-01
    installManPage manuals/man/*
    installShellCompletion --cmd rampack --bash manuals/completions/rampack.bash \
      --fish manuals/completions/rampack.fish --zsh manuals/completions/_rampack
  '';
  meta = {
    description = "Compressed RAM disks and swap without a kernel module";
    license = with pkgs.lib.licenses; [ mit asl20 ];
    platforms = pkgs.lib.platforms.linux;
    mainProgram = "rampack";
  };
}
