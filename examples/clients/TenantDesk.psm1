# A client for TenantDesk in one file, for Windows PowerShell 5.1 and PowerShell 7. It needs nothing
# else. Copy it.
#
#     Import-Module ./TenantDesk.psm1
#
#     $desk = Connect-Desk https://desk.example tdk_...
#     $shop = New-DeskRecord $desk customers @{ name = 'Shop'; city = 'Berlin' }
#     Set-DeskRecord $desk customers $shop.id @{ status = 'inactive' }
#     New-DeskRecord $desk hardware @{ serial_number = 'PF-3X9Q7'; name = 'Laptop' } -UpdateBy serial_number
#     Get-DeskRecord $desk customers -Query @{ status = 'inactive'; sort = '-created_at' } | ForEach-Object name
#     Set-DeskRecord $desk customers $shop.id @{ city = 'Bremen' } -IfMatch $shop.ETag
#     try { Get-DeskRecord $desk customers 99 } catch { $_.TargetObject.Code }
#
# PowerShell 7 turns texts that look like a timestamp into [datetime]; 5.1 leaves them as they are.
# Send dates as text: $date.ToString('yyyy-MM-dd'). This file is ASCII, because 5.1 reads a file
# without a byte order mark in the code page of Windows.

# An answer may lack a member that this file reads. The member is then $null.
Set-StrictMode -Off

Add-Type -AssemblyName System.Net.Http

# 5.1 may not use TLS 1.2 by itself. 0 means that the system chooses.
$isWindowsPowerShell = $PSVersionTable.PSVersion.Major -lt 6
if ($isWindowsPowerShell -and [int][Net.ServicePointManager]::SecurityProtocol -ne 0) {
    [Net.ServicePointManager]::SecurityProtocol =
        [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
}

<#
.SYNOPSIS
One tenant's records. A request is sent at most Tries times; a change takes effect once.
#>
function Connect-Desk {
    param(
        [Parameter(Mandatory)] [string] $Url,
        [Parameter(Mandatory)] [string] $Key,
        [int] $Tries = 5,
        [int] $TimeoutSeconds = 70
    )
    $handler = [System.Net.Http.HttpClientHandler]::new()
    $handler.AllowAutoRedirect = $false
    $client = [System.Net.Http.HttpClient]::new($handler)
    $client.Timeout = [timespan]::FromSeconds($TimeoutSeconds)
    $client.DefaultRequestHeaders.ExpectContinue = $false
    [void] $client.DefaultRequestHeaders.TryAddWithoutValidation('Authorization', "Bearer $Key")
    [pscustomobject] @{ Url = $Url.TrimEnd('/'); Tries = $Tries; Client = $client }
}

<#
.SYNOPSIS
The record with this Id, or every record that matches Query, page by page.
.DESCRIPTION
The version of a record is in its property etag.
#>
function Get-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [long] $Id,
        [System.Collections.IDictionary] $Query = @{}
    )
    # ConvertFrom-Json of 5.1 takes 2 MiB at most.
    $parameters = @{ limit = 100 }
    # An Id that is empty by mistake is an error, and no list.
    if ($PSBoundParameters.ContainsKey('Id')) { $parameters = @{ id = $Id } }
    foreach ($name in $Query.Keys) { $parameters[$name] = $Query[$name] }
    if ($parameters.ContainsKey('id')) {
        return Invoke-Desk $Desk GET "/$Resource.php" -Query $parameters
    }
    do {
        $page = Invoke-Desk $Desk GET "/$Resource.php" -Query $parameters
        $page.data
        $parameters['cursor'] = $page.next_cursor
    } while ($null -ne $page.next_cursor)
}

<#
.SYNOPSIS
Creates a record with these Fields, and returns it. UpdateBy names a field. If a record has the same
value in that field, the request changes that record instead.
#>
function New-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [System.Collections.IDictionary] $Fields,
        [string] $UpdateBy
    )
    $query = @{}
    if ($UpdateBy) { $query['update_by'] = $UpdateBy }
    Invoke-Desk $Desk POST "/$Resource.php" -Query $query -Body $Fields
}

<#
.SYNOPSIS
Changes these Fields of a record, and returns the record. IfMatch is the ETag of a record. If the
record was changed since, the error is 412 precondition_failed.
#>
function Set-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [long] $Id,
        [Parameter(Mandatory)] [System.Collections.IDictionary] $Fields,
        [string] $IfMatch
    )
    Invoke-Desk $Desk PUT "/$Resource.php" -Query @{ id = $Id } -Body $Fields -IfMatch $IfMatch
}

<#
.SYNOPSIS
Deletes a record.
#>
function Remove-DeskRecord {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [ValidateSet('customers', 'employees', 'hardware')]
        [string] $Resource,
        [Parameter(Mandatory)] [long] $Id,
        [string] $IfMatch
    )
    Invoke-Desk $Desk DELETE "/$Resource.php" -Query @{ id = $Id } -IfMatch $IfMatch
}

<#
.SYNOPSIS
Any request: `Invoke-Desk $desk POST /batch.php -Body @{ operations = @(...) }`.
.DESCRIPTION
An answer that is an error is thrown. The TargetObject of the error has Status, Code, Message and
RequestId. With validation_failed, Fields has the error of each field. If an operation of a batch
failed, Operation is its number.
#>
function Invoke-Desk {
    param(
        [Parameter(Mandatory)] $Desk,
        [Parameter(Mandatory)] [string] $Method,
        [Parameter(Mandatory)] [string] $Path,
        [System.Collections.IDictionary] $Query = @{},
        $Body,
        [string] $IfMatch
    )
    # The same for every try, so that the change takes effect once.
    $idempotencyKey = [guid]::NewGuid().ToString()
    $address = $Desk.Url + $Path + (ConvertTo-DeskQuery $Query)
    for ($triesLeft = $Desk.Tries - 1; ; $triesLeft--) {
        # A request cannot be sent twice.
        $verb = [System.Net.Http.HttpMethod]::new($Method.ToUpperInvariant())
        $request = [System.Net.Http.HttpRequestMessage]::new($verb, $address)
        $headers = $request.Headers
        if ($Method -ne 'GET') {
            [void] $headers.TryAddWithoutValidation('Idempotency-Key', $idempotencyKey)
        }
        if ($IfMatch) { [void] $headers.TryAddWithoutValidation('If-Match', $IfMatch) }
        if ($null -ne $Body) {
            # A misspelt field is an error.
            [void] $headers.TryAddWithoutValidation('Prefer', 'handling=strict')
            # Invoke-RestMethod of 5.1 would send ISO-8859-1. A batch has 4 levels; the default of
            # 5.1 is 2.
            $json = ConvertTo-Json -InputObject $Body -Depth 20 -Compress
            $utf8 = [System.Text.Encoding]::UTF8
            $request.Content = [System.Net.Http.StringContent]::new($json, $utf8, 'application/json')
        }
        try {
            $answer = $Desk.Client.SendAsync($request).GetAwaiter().GetResult()
            $text = $answer.Content.ReadAsStringAsync().GetAwaiter().GetResult()
        } catch {
            if ($triesLeft -le 0) { throw }
            Start-Sleep -Seconds 1
            continue
        }
        if ($answer.IsSuccessStatusCode) { return ConvertFrom-DeskAnswer $text }
        $status = [int] $answer.StatusCode
        if ($status -notin 429, 502, 503, 504 -or $triesLeft -le 0) {
            throw (New-DeskError $answer $text)
        }
        $wait = 1
        if ($answer.Headers.RetryAfter -and $answer.Headers.RetryAfter.Delta) {
            $wait = $answer.Headers.RetryAfter.Delta.TotalSeconds
        }
        Start-Sleep -Seconds $wait
    }
}

# The query string of an address.
function ConvertTo-DeskQuery([System.Collections.IDictionary] $Query) {
    $pairs = foreach ($name in $Query.Keys) {
        $value = $Query[$name]
        # Leaving it out would find every record.
        if ($null -eq $value) { $value = 'null' }
        if ($value -is [bool]) { $value = "$value".ToLowerInvariant() }
        if ($value -is [datetime]) {
            $value = $value.ToUniversalTime().ToString('yyyy-MM-ddTHH:mm:ssZ')
        }
        [uri]::EscapeDataString($name) + '=' + [uri]::EscapeDataString("$value")
    }
    if ($pairs) { '?' + ($pairs -join '&') } else { '' }
}

function ConvertFrom-DeskAnswer([string] $Text) {
    if ($Text) { ConvertFrom-Json -InputObject $Text }
}

function New-DeskError($Answer, [string] $Text) {
    # The answer of a proxy, for example, is not JSON.
    $document = $null
    try {
        $document = ConvertFrom-Json -InputObject $Text
    } catch {
        Write-Verbose 'The answer is not JSON.'
    }
    $code = 'unknown'
    $message = $Answer.ReasonPhrase
    if ($document.error.code) {
        $code = $document.error.code
        $message = $document.error.message
    }
    if ([int] $Answer.StatusCode -lt 400) {
        $code = 'redirected'
        $message = "The server redirects to $($Answer.Headers.Location). Use this address."
    }
    $requestId = $null
    if ($Answer.Headers.Contains('X-Request-Id')) {
        $requestId = @($Answer.Headers.GetValues('X-Request-Id'))[0]
    }
    $status = [int] $Answer.StatusCode
    $target = [pscustomobject] @{
        Status = $status
        Code = $code
        Message = $message
        Fields = $document.errors
        Operation = $document.operation
        RequestId = $requestId
    }
    $summary = "$status ${code}: $message (request $requestId)"
    $exception = [System.InvalidOperationException]::new($summary)
    [System.Management.Automation.ErrorRecord]::new($exception, $code, 'InvalidOperation', $target)
}

$public = 'Connect-Desk', 'Invoke-Desk',
    'Get-DeskRecord', 'New-DeskRecord', 'Set-DeskRecord', 'Remove-DeskRecord'
Export-ModuleMember -Function $public
