# rampack for Nix: `nix-build dist/nix`. The crates come by the checksums of Cargo.lock.
{ pkgs ? import <nixpkgs> { } }:

pkgs.rustPlatform.buildRustPackage {
  pname = "rampack";
  version = (builtins.fromTOML (builtins.readFile ../../Cargo.toml)).workspace.package.version;
  src = builtins.path {
    path = ../..;
    name = "rampack-source";
    filter = path: _: ! builtins.elem (baseNameOf path) [ "target" ".git" ];
  };
  cargoLock.lockFile = ../../Cargo.lock;
  cargoBuildFlags = [ "--package" "rampack-cli" "--features" "remote" ];
  # Tests need loop devices, FUSE and swap, which a build has not.
  doCheck = false;
  postInstall = ''
    install -D --mode=644 --target-directory=$out/lib/systemd/system dist/systemd/*.service
    substituteInPlace $out/lib/systemd/system/*.service --replace "=rampack " "=$out/bin/rampack "
    install -D --mode=644 --target-directory=$out/share/doc/rampack/examples dist/examples/*.toml
  '';
  meta = {
    description = "Compressed RAM disks and swap without a kernel module";
    license = with pkgs.lib.licenses; [ mit asl20 ];
    platforms = pkgs.lib.platforms.linux;
    mainProgram = "rampack";
  };
}
