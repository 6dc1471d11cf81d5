"""The stream side of gadgetron-ebm: the only package that knows ISMRMRD, sockets and files."""
