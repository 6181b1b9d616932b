from seqloom.cli import main

main()
