# Prints the MAC addresses of the machine's network cards in one line.
$cards = foreach ($card in [Net.NetworkInformation.NetworkInterface]::GetAllNetworkInterfaces()) {
    $digits = $card.GetPhysicalAddress().ToString()
    if ($digits.Length -eq 12) { $digits -replace '(..)(?=.)', '$1:' }
}
Say (($cards | Sort-Object -Unique | Select-Object -First 300) -join ' ')
