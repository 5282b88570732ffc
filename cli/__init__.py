"""The command `rejoinder`: composes the other packages."""
